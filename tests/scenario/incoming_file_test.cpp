// Example 10's server checks what a peer says: a file's name, its size, and its bytes.

#include "incoming_file.hpp"

#include "support/temporary_folder.hpp"
#include "support/text.hpp"

#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

using namespace cordma::test;

namespace {

std::string contents_of(const std::filesystem::path& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

std::ptrdiff_t files_in(const temporary_folder& folder) {
  return std::distance(std::filesystem::directory_iterator{folder.path}, {});
}

}  // namespace

TEST_CASE("an incoming file has its name when it is kept, and replaces one of that name",
          "[scenario]") {
  const temporary_folder folder;
  std::ofstream{folder.path / "it"} << "older";
  {
    incoming_file file{folder.path, "it", 6};
    file.write(4, bytes_of("56"));
    file.write(0, bytes_of("1234"));
    cordma::executor executor;
    CHECK(executor.run(file.checksum()) == crc64{}.add(bytes_of("123456")).value());
    CHECK(contents_of(folder.path / "it") == "older");
    file.keep();
  }
  CHECK(contents_of(folder.path / "it") == "123456");
  CHECK(files_in(folder) == 1);
}

TEST_CASE("an incoming file that is not kept leaves nothing behind", "[scenario]") {
  const temporary_folder folder;
  {
    incoming_file file{folder.path, "it", 6};
    file.write(0, bytes_of("123456"));
    CHECK(files_in(folder) == 1);
  }
  CHECK(files_in(folder) == 0);
}

TEST_CASE("an incoming file's name is a name, and no way out of the folder", "[scenario]") {
  const temporary_folder folder;
  for (const std::string& name :
       {std::string{}, std::string{"."}, std::string{".."}, std::string{"../it"},
        std::string{"/it"}, std::string{"a/it"}, std::string{"it/"}, std::string{".hidden"},
        std::string{"\x1b[2J"}, std::string{"a\nb"}, std::string{"a\0b", 3},
        std::string(256, 'a')}) {
    INFO(name);
    CHECK_THROWS_WITH(incoming_file(folder.path, name, 1), Catch::Contains("not a name"));
  }
  CHECK(files_in(folder) == 0);
  for (const std::string& name : {std::string{"a..b"}, std::string(255, 'a'), std::string{"ä ö"}}) {
    incoming_file(folder.path, name, 0).keep();
    CHECK(std::filesystem::exists(folder.path / name));
  }
}

TEST_CASE("an incoming file that there is no room for is refused when it begins", "[scenario]") {
  const temporary_folder folder;
  for (const auto size : {std::uint64_t{std::numeric_limits<std::int64_t>::max()},
                          std::numeric_limits<std::uint64_t>::max()}) {
    CHECK_THROWS_WITH(incoming_file(folder.path, "it", size), Catch::Contains("for 'it'"));
  }
  CHECK_THROWS_WITH(incoming_file(folder.path / "none", "it", 1),
                    Catch::Contains("No such file or directory"));
  CHECK(files_in(folder) == 0);
}

TEST_CASE("an incoming file takes no piece beyond its end", "[scenario]") {
  const temporary_folder folder;
  incoming_file file{folder.path, "it", 6};
  CHECK_THROWS_AS(file.write(5, bytes_of("12")), std::out_of_range);
  CHECK_THROWS_AS(file.write(7, {}), std::out_of_range);
  CHECK_THROWS_AS(file.write(~std::uint64_t{0}, bytes_of("12")), std::out_of_range);
  file.write(6, {});
}
