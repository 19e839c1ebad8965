"""A recipe for Conan 2. What was tried of it: docs/packages.md."""

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy
from conan.tools.gnu import PkgConfigDeps
from conan.tools.layout import basic_layout
from conan.tools.meson import Meson, MesonToolchain


class Cordma(ConanFile):
    name = "cordma"
    version = "0.2.0"
    license = "Apache-2.0"
    description = "RDMA by co_await for C++20"
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "with_openssl": [True, False]}
    default_options = {"shared": False, "with_openssl": True}

    # The recipe lies in packaging/conan of the tree.
    def export_sources(self):
        tree = os.path.join(self.recipe_folder, "..", "..")
        copy(self, "*", src=tree, dst=self.export_sources_folder,
             excludes=(".git", "build*", "subprojects/*/build*", "*__pycache__*"))

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("RDMA verbs are Linux's")

    def requirements(self):
        # rdma-core, liburing and jemalloc are the system's: the kernel and the device's driver fit them.
        if self.options.with_openssl:
            self.requires("openssl/[>=3.0 <4]", transitive_headers=False)

    def layout(self):
        self.folders.root = os.path.join("..", "..")
        basic_layout(self)

    def generate(self):
        PkgConfigDeps(self).generate()
        toolchain = MesonToolchain(self)
        for part in ("tests", "examples", "bench", "tools"):
            toolchain.project_options[part] = False
        for feature in ("pmix", "sim", "softverbs", "usdt"):
            toolchain.project_options[feature] = "disabled"
        toolchain.project_options["openssl"] = "enabled" if self.options.with_openssl else "disabled"
        toolchain.generate()

    def build(self):
        meson = Meson(self)
        meson.configure()
        meson.build()

    def package(self):
        Meson(self).install()
        copy(self, "LICENSE", src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.libs = ["cordma"]
        self.cpp_info.cxxflags = ["-foptimize-sibling-calls"]
        self.cpp_info.system_libs = ["rdmacm", "ibverbs", "uring", "pthread"]
        self.cpp_info.set_property("cmake_file_name", "cordma")
        self.cpp_info.set_property("cmake_target_name", "cordma::cordma")
        self.cpp_info.set_property("pkg_config_name", "cordma")
