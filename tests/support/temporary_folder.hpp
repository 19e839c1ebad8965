#pragma once

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp is POSIX's.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>

namespace cordma::test {

/// A folder that is gone with the test.
struct temporary_folder {
  temporary_folder() {
    std::string text = (std::filesystem::temp_directory_path() / "cordma.XXXXXX").string();
    REQUIRE(::mkdtemp(text.data()) != nullptr);
    path = text;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

}  // namespace cordma::test
