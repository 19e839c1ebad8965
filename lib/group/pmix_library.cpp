#include "pmix_library.hpp"

#include <dlfcn.h>

namespace cordma::detail {
namespace {

/// Named by its ABI: that of PMIx 3, 4 and 5.
constexpr const char* file = "libpmix.so.2";

struct loaded {
  loaded() {
    void* const handle = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const bool is_whole = handle != nullptr && find(handle, functions.init, "PMIx_Init") &&
                          find(handle, functions.finalize, "PMIx_Finalize") &&
                          find(handle, functions.put, "PMIx_Put") &&
                          find(handle, functions.commit, "PMIx_Commit") &&
                          find(handle, functions.fence, "PMIx_Fence_nb") &&
                          find(handle, functions.get, "PMIx_Get_nb") &&
                          find(handle, functions.register_handler, "PMIx_Register_event_handler") &&
                          find(handle, functions.error_string, "PMIx_Error_string");
    if (!is_whole) why_not = reason();
  }

  template <class F>
  static bool find(void* handle, F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(handle, name));
    return function != nullptr;
  }
  static std::string reason() {
    const char* const text = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the thread's own.
    return text != nullptr ? text : "no reason given";
  }

  pmix_library functions;
  std::string why_not;  // Empty: all functions were found.
};

const loaded& once() {
  static const loaded library;  // Never closed: PMIx has threads.
  return library;
}

}  // namespace

const pmix_library* pmix_library::load() noexcept {
  return once().why_not.empty() ? &once().functions : nullptr;
}

const std::string& pmix_library::why_not() noexcept { return once().why_not; }

}  // namespace cordma::detail
