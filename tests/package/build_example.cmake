# Installs the package from a build, then configures, builds and runs an example on it, all in a folder of its
# own: cmake -DBUILD=... -DEXAMPLE=<folder of docs/> -DPROGRAM=... -DEXPECTED=<regular expression> -DCOMPILER=...
# -DGENERATOR=... -DMAKE_PROGRAM=... -P
function(checked)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    file(REMOVE_RECURSE ${folder})
    message(FATAL_ERROR "${ARGN}: ${result}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

string(RANDOM LENGTH 8 name)
set(folder ${BUILD}/package-${name})
checked(${CMAKE_COMMAND} --install ${BUILD} --component package --prefix ${folder}/installed)
checked(${CMAKE_COMMAND} -S ${EXAMPLE} -B ${folder}/example -G ${GENERATOR} -DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}
        -DCMAKE_PREFIX_PATH=${folder}/installed
        -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release)
checked(${CMAKE_COMMAND} --build ${folder}/example)
checked(${folder}/example/${PROGRAM} ${folder}/data)
file(REMOVE_RECURSE ${folder})
if(NOT output MATCHES "${EXPECTED}")
  message(FATAL_ERROR "${PROGRAM} printed\n${output}\nand not ${EXPECTED}")
endif()
