// The bound of collectives: raw verbs messages along an operation's critical path, or as many bytes
// as it must move, among the same processes. Nothing is combined, and no byte is where it belongs.
//     raw_collectives FILE [busy|yielding|event|adaptive]

#include "raw_links.hpp"

#include <exception>
#include <iostream>

namespace {

using bench::collective;
using bench::order;
using bench::raw_links;

/// In each round all ranks send a message to one twice as far away; `bytes(distance)` long.
template <class Bytes>
void disseminate(raw_links& links, Bytes bytes) {
  const unsigned n = links.size();
  for (unsigned distance = 1; distance < n; distance *= 2) {
    links.send((links.rank() + distance) % n, bytes(distance));
    links.await((links.rank() + n - distance) % n);
  }
}

/// The binomial tree.
void broadcast(raw_links& links, unsigned root, std::size_t bytes) {
  const unsigned n = links.size(), from_root = (links.rank() + n - root) % n;
  unsigned distance = 1;
  for (; distance < n && (from_root & distance) == 0; distance *= 2) {
  }
  if (from_root != 0) links.await((links.rank() + n - distance) % n);
  while ((distance /= 2) > 0)
    if (from_root + distance < n) links.send((links.rank() + distance) % n, bytes);
}

void exchange(raw_links& links, std::size_t bytes) {
  const unsigned n = links.size();
  for (unsigned i = 1; i < n; ++i) links.send((links.rank() + i) % n, bytes);
  for (unsigned i = 1; i < n; ++i) links.await((links.rank() + n - i) % n);
}

/// Messages along the critical path.
collective by_messages(raw_links& links, const order& asked) {
  const std::size_t all = asked.bytes, block = all / links.size();
  if (asked.operation == "barrier")
    return [&links] { disseminate(links, [](unsigned) { return std::size_t{8}; }); };
  if (asked.operation == "all_reduce")
    return [&links, all] { disseminate(links, [all](unsigned) { return all; }); };
  if (asked.operation == "all_gather" || asked.operation == "reduce_scatter")
    return [&links, block] { disseminate(links, [block](unsigned i) { return i * block; }); };
  if (asked.operation == "all_to_all") return [&links, block] { exchange(links, block); };
  if (asked.operation == "broadcast")
    return [&links, all, root = 0u]() mutable { broadcast(links, root++ % links.size(), all); };
  return {};
}

/// Moves the bytes that a rank must send and receive, from and to where a ring has them.
collective by_bytes(raw_links& links, const order& asked) {
  const unsigned n = links.size();
  const std::size_t part = asked.bytes / n, all = part * n, others = part * (n - 1);
  if (asked.operation == "all_reduce")
    return [&links, part, all, others] { links.shift(all, part, 2 * others, 2 * others); };
  if (asked.operation == "all_gather" || asked.operation == "reduce_scatter" ||
      asked.operation == "all_to_all")
    return [&links, part, all, others] { links.shift(all, part, others, others); };
  if (asked.operation == "broadcast")
    return [&links, bytes = asked.bytes, n, root = 0u]() mutable {
      const unsigned from_root = (root++ % n + n - links.rank()) % n;
      links.shift(bytes, 0, from_root == n - 1 ? 0 : bytes, from_root == 0 ? 0 : bytes);
    };
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error{"the file where ranks meet is missing"};
  const bench::rank_of mine = bench::begin_rank();
  const char* const fitting = bench::has_processor_each(mine) ? "busy" : "yielding";
  raw_links links{mine, argv[1], bench::waiting_by(argc > 2 ? argv[2] : fitting)};
  bench::serve_orders(
      mine.rank,
      [&](const order& asked) {
        return asked.bytes <= raw_links::message_bytes_max ? by_messages(links, asked)
                                                           : by_bytes(links, asked);
      },
      by_messages(links, {"barrier"}));
} catch (const std::exception& error) {
  std::cerr << "raw_collectives: " << error.what() << '\n';
  return 1;
}
