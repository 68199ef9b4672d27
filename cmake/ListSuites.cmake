# Run when a GoogleTest program has been linked: writes the CTest tests of PROGRAM to OUT, one for each of its suites.
# PREFIX stands before their names; TIMEOUT and ENVIRONMENT are properties of them all.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n[^ \n]+\\.[ \n]" headings "\n${listed}")  # cases are indented
set(tests "")
foreach(heading ${headings})
  string(REGEX REPLACE "\n(.*)\\.[ \n]" "\\1" suite "${heading}")
  string(APPEND tests "add_test([[${PREFIX}${suite}]] [[${PROGRAM}]] [[--gtest_filter=${suite}.*]])\n"
                      "set_tests_properties([[${PREFIX}${suite}]] PROPERTIES TIMEOUT ${TIMEOUT} "
                      "ENVIRONMENT [[${ENVIRONMENT}]])\n")
endforeach()
if(tests STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} lists no tests")
endif()
file(WRITE ${OUT} "${tests}")
