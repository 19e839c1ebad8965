# An overlay port, which lies in the tree that it builds. What was tried of it: docs/packages.md.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../.." ABSOLUTE)

# rdma-core and jemalloc are the system's: the kernel and the device's driver fit them.
vcpkg_configure_meson(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -Dtests=false -Dexamples=false -Dbench=false -Dtools=false
    -Dsoftverbs=disabled -Dsim=disabled -Dpmix=disabled -Dusdt=disabled -Dopenssl=enabled)
vcpkg_install_meson()
vcpkg_fixup_pkgconfig()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/cordma)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
