#include <cordma/memory/local_mr.hpp>

#include <cordma/base/error.hpp>
#include <cordma/verbs/memory_region.hpp>

#include <sys/mman.h>

#include <cerrno>
#include <memory>

namespace cordma {
namespace {

class page_mapping {
 public:
  explicit page_mapping(std::size_t size_bytes) : size_bytes_{size_bytes} {
    address_ =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address_ == MAP_FAILED) throw error{errno_failure(errno, "mmap", {"bytes", size_bytes})};
  }
  page_mapping(page_mapping&&) = delete;
  ~page_mapping() { ::munmap(address_, size_bytes_); }
  [[nodiscard]] void* address() const noexcept { return address_; }

 private:
  void* address_;
  std::size_t size_bytes_;
};

struct registered_pages {
  registered_pages(verbs::protection_domain& pd, std::size_t size_bytes, verbs::access access)
      : pages{size_bytes}, mr{pd, pages.address(), size_bytes, access} {}
  page_mapping pages;
  verbs::memory_region mr;  // After the pages: deregistered before they go.
};

void release(memory_block&, void* context) noexcept {
  delete static_cast<registered_pages*>(context);
}

}  // namespace

remote_mr_slice local_mr::remote_slice() const {
  if (rkey_ == 0) {
    throw error{{.code = errc::access_denied,
                 .call = "local_mr::remote_slice",
                 .detail = "registered without remote access: ask for remote_read, remote_write or "
                           "remote_atomic when allocating"}};
  }
  return {reinterpret_cast<std::uint64_t>(whole_.bytes().data()), size_bytes(), rkey_};
}

local_mr allocate_pages(verbs::protection_domain& pd, std::size_t size_bytes,
                        verbs::access access) {
  if (size_bytes == 0) {
    throw error{{.code = errc::out_of_range,
                 .call = "allocate_pages",
                 .detail = "0 bytes: ask for at least 1"}};
  }
  auto owned = std::make_unique<registered_pages>(pd, size_bytes, access);
  memory_block& block = memory_block::make(pd.native_handle(), access, &release, owned.get());
  const verbs::memory_region& mr = owned.release()->mr;
  const bool is_remote = (access & (verbs::access::remote_read | verbs::access::remote_write |
                                    verbs::access::remote_atomic)) != verbs::access::none;
  return {mr.address(), size_bytes, mr.lkey(), is_remote ? mr.rkey() : 0, block};
}

}  // namespace cordma
