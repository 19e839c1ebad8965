// A plug-in of a program that was not linked with cordma: how much is registered for 100 bytes.

#include <cordma/memory/mr_allocator.hpp>
#include <cordma/verbs/device.hpp>

#include <cstddef>

extern "C" std::size_t registered_for_100_bytes() {
  cordma::verbs::context ctx{"soft0"};
  cordma::verbs::protection_domain pd{ctx};
  cordma::mr_allocator memory{pd};
  [[maybe_unused]] const cordma::local_mr mr = memory.allocate_zeroed(100);
  return memory.statistics().registered_bytes;
}
