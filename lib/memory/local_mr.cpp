#include <cordma/memory/local_mr.hpp>

#include <cordma/base/error.hpp>
#include <cstdint>

namespace cordma {
remote_mr_slice local_mr::remote_slice() const {
  if (rkey_ == 0) {
    throw error{{.code = errc::access_denied,
                 .call = "local_mr::remote_slice",
                 .detail = "registered without remote access: ask for remote_read, remote_write or "
                           "remote_atomic when allocating"}};
  }
  return {reinterpret_cast<std::uint64_t>(whole_.bytes().data()), size_bytes(), rkey_};
}

}  // namespace cordma
