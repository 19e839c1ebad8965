#include "rdma_cm.hpp"
#include "sanitized.hpp"

#include <infiniband/verbs.h>

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <memory>
#include <string>

// The program of these tests is linked with neither libsoftverbs.so nor libibverbs.

namespace {

struct closer {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};
using library = std::unique_ptr<void, closer>;

bool is_loaded(const char* part_of_path) {
  const auto compare = [](dl_phdr_info* info, std::size_t, void* wanted) {
    return std::strstr(info->dlpi_name, static_cast<const char*>(wanted)) != nullptr ? 1 : 0;
  };
  return ::dl_iterate_phdr(compare, const_cast<char*>(part_of_path)) != 0;
}

/// All that `what` and the libraries below it say on stderr, in a child: some is said only once.
template <class What>
std::string said_by(What what) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "no pipe";
  const int status = rdma_cm::in_child([&] { return ::dup2(ends[1], 2) == 2 && what(); });
  ::close(ends[1]);
  std::string said;
  char bytes[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    said.append(bytes, static_cast<std::size_t>(count));
  ::close(ends[0]);
  return said + (status == 0 ? "" : "(failed)");
}

std::string last_device(void* of_library) {
  const auto list = reinterpret_cast<decltype(&ibv_get_device_list)>(
      ::dlvsym(of_library, "ibv_get_device_list", "IBVERBS_1.1"));
  const auto free = reinterpret_cast<decltype(&ibv_free_device_list)>(
      ::dlsym(of_library, "ibv_free_device_list"));
  if (list == nullptr || free == nullptr) return "";
  int count = 0;
  ibv_device** const all = list(&count);
  const std::string name = count > 0 ? all[count - 1]->name : "";
  // UCX looks for a file of this name, which libsoftverbs_cm.so describes.
  if (count > 0) CHECK(all[count - 1]->dev_name == name);
  free(all);
  return name;
}

}  // namespace

TEST_CASE("a program that opens libibverbs by any of its names finds soft0", "[libc]") {
  for (const char* name : {"libibverbs.so", "libibverbs.so.1", "/no/such/folder/libibverbs.so.1"}) {
    INFO(name);
    const library opened{::dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    REQUIRE(opened != nullptr);
    CHECK(last_device(opened.get()) == "soft0");
    CHECK(::dlsym(opened.get(), "softverbs_reset") != nullptr);
  }
}

TEST_CASE("softverbs itself opens the real libibverbs", "[libc]") {
  const library opened{::dlopen("libibverbs.so.1", RTLD_NOW)};
  REQUIRE(opened != nullptr);
  CHECK(last_device(opened.get()) == "soft0");
  CHECK(is_loaded("/libibverbs.so.1"));
}

TEST_CASE("other libraries are opened as they are, or not found", "[libc]") {
  const library math{::dlopen("libm.so.6", RTLD_NOW)};
  REQUIRE(math != nullptr);
  CHECK(::dlsym(math.get(), "cos") != nullptr);
  CHECK(::dlsym(math.get(), "softverbs_reset") == nullptr);
  for (const char* name : {"libibverbs.sox", "libibverbs.s", "xlibibverbs.so.1", "no-such.so"})
    CHECK(::dlopen(name, RTLD_NOW) == nullptr);
  const library self{::dlopen(nullptr, RTLD_NOW)};
  CHECK(self != nullptr);
}

TEST_CASE("a library that only the caller's RUNPATH finds is found", "[libc]") {
  const library found{::dlopen("libsoftverbs_found_by_runpath.so", RTLD_NOW)};
  INFO((found == nullptr ? ::dlerror() : ""));
  REQUIRE(found != nullptr);
  CHECK(::dlsym(found.get(), "softverbs_was_found") != nullptr);
}

#ifndef SOFTVERBS_SANITIZED  // A sanitizer refuses the flag.
TEST_CASE("what is opened with RTLD_DEEPBIND is opened, and is said once to be not served",
          "[libc]") {
  const auto open_deeply = [](const char* name) {
    return ::dlopen(name, RTLD_NOW | RTLD_DEEPBIND) != nullptr;
  };
  constexpr const char* found = "libsoftverbs_found_by_runpath.so";
  const std::string said = said_by([&] { return open_deeply(found) && open_deeply("libm.so.6"); });
  CHECK(
      said.starts_with("softverbs: libsoftverbs_found_by_runpath.so is opened with RTLD_DEEPBIND"));
  CHECK(said.ends_with("open it without that flag\n"));
  CHECK(said.find("libm") == std::string::npos);
  CHECK(
      said_by([&] { return ::setenv("SOFTVERBS", "off", 1) == 0 && open_deeply(found); }).empty());
  CHECK(said_by([&] { return open_deeply("libibverbs.so.1"); }).empty());
}
#endif
