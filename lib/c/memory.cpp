#include "call.hpp"

#include <cstring>

using namespace cordma::c;
using cordma::local_mr;
using cordma::mr_allocator;
using cordma::remote_mr;
using cordma::remote_mr_slice;
namespace verbs = cordma::verbs;

namespace {

verbs::access access_of(unsigned wanted) {
  constexpr unsigned known = CORDMA_REMOTE_READ | CORDMA_REMOTE_WRITE | CORDMA_REMOTE_ATOMIC;
  if ((wanted & ~known) != 0)
    throw misuse{CORDMA_BAD_ARGUMENT, "access has bits that are no cordma_access"};
  verbs::access made = verbs::access::local_write;
  if ((wanted & CORDMA_REMOTE_READ) != 0) made |= verbs::access::remote_read;
  if ((wanted & CORDMA_REMOTE_WRITE) != 0) made |= verbs::access::remote_write;
  if ((wanted & CORDMA_REMOTE_ATOMIC) != 0) made |= verbs::access::remote_atomic;
  return made;
}

mr_allocator& allocator_of(context& in, unsigned wanted) {
  const verbs::access access = access_of(wanted);
  return wanted == CORDMA_LOCAL ? in.rt.memory() : in.rt.memory(access);
}

cordma_memory adopt(context& in, local_mr made) {
  const ref<memory_object> one{*new memory_object{in, std::move(made)}};
  in.adopt(kind::memory, *one.get());
  return pointer_of<cordma_memory>(one->number);
}

cordma_remote adopt(connection_object& of, const remote_mr_slice& all, remote_mr borrowed) {
  const ref<remote_object> one{*new remote_object{of, all}};
  one->borrowed = std::move(borrowed);
  of.owner.adopt(kind::remote, *one.get());
  return pointer_of<cordma_remote>(one->number);
}

}  // namespace

int cordma_allocate(cordma_context in, size_t bytes, unsigned access, cordma_memory* made,
                    void** address) {
  if (made == nullptr || address == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_allocate: made or address is null");
  *made = nullptr;
  *address = nullptr;
  return enter<context>(number_of(in), [&](context& c) {
    local_mr mr = allocator_of(c, access).allocate_zeroed(bytes);
    void* const at = mr.bytes().data();
    *made = adopt(c, std::move(mr));
    *address = at;
    return int{CORDMA_OK};
  });
}

int cordma_register(cordma_context in, void* address, size_t bytes, unsigned access,
                    cordma_memory* made) {
  if (made == nullptr || address == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_register: made or address is null");
  *made = nullptr;
  return enter<context>(number_of(in), [&](context& c) {
    const std::span memory{static_cast<std::byte*>(address), bytes};
    *made = adopt(c, allocator_of(c, access).register_external(memory));
    return int{CORDMA_OK};
  });
}

int cordma_free(cordma_memory memory) {
  return enter<memory_object>(number_of(memory), [](memory_object& m) {
    context::abandon(m);
    return int{CORDMA_OK};
  });
}

int cordma_export(cordma_memory memory, void* name) {
  if (name == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_export: name is null");
  static_assert(remote_mr_slice::encoded_bytes == CORDMA_NAME_BYTES);
  return enter<memory_object>(number_of(memory), [&](memory_object& m) {
    const auto encoded = m.mr.remote_slice().encode();
    std::memcpy(name, encoded.data(), encoded.size());
    return int{CORDMA_OK};
  });
}

int cordma_import(cordma_connection connection, const void* name, cordma_remote* made) {
  if (made == nullptr || name == nullptr)
    return note(CORDMA_BAD_ARGUMENT, "cordma_import: name or made is null");
  *made = nullptr;
  return enter<connection_object>(number_of(connection), [&](connection_object& c) {
    const std::span bytes{static_cast<const std::byte*>(name), CORDMA_NAME_BYTES};
    *made = adopt(c, remote_mr_slice::decode(bytes), {});
    return int{CORDMA_OK};
  });
}

int cordma_request(cordma_connection connection, size_t bytes, int64_t lease_us, int64_t timeout_us,
                   cordma_remote* made) {
  if (made == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_request: made is null");
  *made = nullptr;
  if (lease_us <= 0) return note(CORDMA_BAD_ARGUMENT, "cordma_request: lease_us is not above 0");
  struct granted {
    ref<connection_object> by;
    remote_mr memory;
  };
  return block<connection_object>(
      number_of(connection), timeout_us,
      [&](connection_object& c) {
        return [](ref<connection_object> by, std::size_t size,
                  cordma::remote_mr_request request) -> cordma::task<granted> {
          remote_mr memory = co_await by->link.request_remote_mr(size, request);
          co_return granted{std::move(by), std::move(memory)};
        }(ref<connection_object>{c}, bytes,
                                                     {.lease = span_of(lease_us),
                                                      .timeout = option_of(timeout_us)});
      },
      [&](granted&& got) {
        const remote_mr_slice all = got.memory.slice();
        *made = adopt(*got.by.get(), all, std::move(got.memory));
      });
}

int cordma_return(cordma_remote remote) {
  return enter<remote_object>(number_of(remote), [](remote_object& r) {
    const ref<remote_object> kept{r};
    context::abandon(r);
    r.borrowed = {};
    r.owner.kick();
    return int{CORDMA_OK};
  });
}

int cordma_remote_bytes(cordma_remote remote, uint64_t* bytes) {
  if (bytes == nullptr) return note(CORDMA_BAD_ARGUMENT, "cordma_remote_bytes: bytes is null");
  return enter<remote_object>(number_of(remote), [&](remote_object& r) {
    *bytes = r.slice.size_bytes();
    return int{CORDMA_OK};
  });
}
