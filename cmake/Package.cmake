# What other projects embed: `find_package(sluice)` gives sluice::<folder> for the folders below. Headers keep their
# folders: #include "swap/record_store.h". `cmake --install <build> --component package` needs their libraries only.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(SLUICE_PACKAGED core swap cpu_adam)
set(SLUICE_PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)

foreach(folder ${SLUICE_PACKAGED})
  # Independent of their position: an embedder may be a shared object.
  set_target_properties(sluice_${folder} PROPERTIES EXPORT_NAME ${folder} POSITION_INDEPENDENT_CODE ON)
  target_include_directories(sluice_${folder} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/sluice>)
  target_compile_features(sluice_${folder} PUBLIC cxx_std_20)
  install(TARGETS sluice_${folder} EXPORT sluice ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT package)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice COMPONENT package
          FILES_MATCHING PATTERN "*.h" PATTERN "*.inl" PATTERN "*_impl.h" EXCLUDE)
endforeach()
install(EXPORT sluice NAMESPACE sluice:: FILE sluiceTargets.cmake DESTINATION ${SLUICE_PACKAGE_FOLDER}
        COMPONENT package)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/sluiceConfig.cmake.in ${CMAKE_BINARY_DIR}/sluiceConfig.cmake
                              INSTALL_DESTINATION ${SLUICE_PACKAGE_FOLDER})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sluiceConfig.cmake ${CMAKE_BINARY_DIR}/sluiceConfigVersion.cmake
        DESTINATION ${SLUICE_PACKAGE_FOLDER} COMPONENT package)
