// A user's program: built outside the tree, against what was installed or as a subproject's user.
// It needs code of the library, of libibverbs and of liburing, and allocates registered memory
// where there is a device.
#include <cordma/cordma.hpp>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace {

cordma::task<int> answer(cordma::executor& executor) {
  co_await executor.sleep_for(std::chrono::microseconds{1});
  co_return CORDMA_VERSION_MAJOR;
}

/// An exception of the library is caught by its type, wherever the library lies.
bool is_error_caught() {
  try {
    static_cast<void>(cordma::endpoint::parse("no port"));
  } catch (const cordma::error& e) {
    return e.failure().code == std::errc::invalid_argument;
  } catch (const std::exception&) {
    return false;
  }
  return false;
}

/// The file that malloc comes from.
const char* library_of_malloc() {
  Dl_info found{};
  return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &found) != 0 ? found.dli_fname : "nowhere";
}

}  // namespace

int main() {
  for (const auto& device : cordma::verbs::list_devices()) {
    cordma::verbs::context context{device.name};
    cordma::verbs::protection_domain pd{context};
    cordma::mr_allocator memory{pd};
    const cordma::local_mr mr = memory.allocate_zeroed(4096);
    std::printf("%s: %zu bytes registered\n", device.name.c_str(), mr.size_bytes());
  }
  cordma::executor executor;
  const cordma::failure lost{.code = cordma::errc::disconnected, .call = "poll"};
  std::printf("malloc is in %s\n", library_of_malloc());
  std::printf("cordma %d: %s\n", executor.run(answer(executor)), lost.to_string().c_str());
  return is_error_caught() && lost.remedy() == cordma::failure::remedy_kind::reconnect ? 0 : 1;
}
