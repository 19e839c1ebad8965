#include "byte_channel.hpp"

#include "base/failures.hpp"

#include <cordma/io/executor.hpp>

namespace cordma {

byte_channel::byte_channel(cordma::executor& executor) noexcept
    : executor_{executor}, changed_{executor} {}

task<std::size_t> read_some(byte_channel& channel, std::span<std::byte> into) {
  for (;;) {
    if (const auto n = channel.try_read(into)) co_return *n;
    co_await channel.change();
  }
}

task<> read_exactly(byte_channel& channel, std::span<std::byte> into) {
  for (std::size_t done = 0; done < into.size();) {
    const std::size_t n = co_await read_some(channel, into.subspan(done));
    if (n == 0) {
      detail::throw_failure(errc::disconnected, "recv",
                            detail::detail_text("after %zu of %zu bytes", done, into.size()));
    }
    done += n;
  }
}

task<> write_all(byte_channel& channel, std::span<const std::byte> from) {
  while (!from.empty()) {
    const std::size_t n = channel.try_write(from);
    from = from.subspan(n);
    if (n == 0) co_await channel.change();
  }
}

}  // namespace cordma
