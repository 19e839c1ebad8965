#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned mesh_hosts = 4;
constexpr unsigned mesh_operations = 1000;
constexpr unsigned mesh_links = mesh_hosts * (mesh_hosts - 1) / 2;
constexpr std::size_t area_bytes = 256 * kib;
constexpr std::size_t offset_max = 4 * kib;  // Large messages use equal pages, which saves time.
constexpr std::size_t words_bytes = 4 * kib;
constexpr std::size_t word_distance = 64;

using bytes = std::span<const std::byte>;
struct mesh_echo : rpc::method<"mesh.echo", bytes, bytes> {};

/// Tasks of a connection of the mesh, beside one-sided operations.
enum class link_use { messages, stream, calls };

/// Hosts that are all connected. Each host has an area for each peer to write to, and words.
struct mesh : cast {
  using cast::cast;
  std::array<std::uint64_t, mesh_hosts> added{};  ///< to the first word of each host
  /// Parts that each host wrote to memory that it had asked for, by its peer's number.
  std::array<std::array<std::vector<part>, mesh_hosts>, mesh_hosts> handed_over;
  unsigned done = 0;
  task<> live(runtime& rt, unsigned self);
  /// Connections to this port have receives before anything is sent.
  [[nodiscard]] endpoint messages_at(unsigned host) const {
    return hosts[host]->endpoint(sim_port + 1);
  }

  /// Operations of each connection are as many, but for the remainder.
  static unsigned operations_of(unsigned low, unsigned high) {
    const unsigned number = high * (high - 1) / 2 + low;
    return mesh_operations / mesh_links + (number < mesh_operations % mesh_links);
  }
  static link_use use_of(unsigned low, unsigned high) { return link_use((low + high) % 3); }
};

/// One end of a connection of the mesh.
class link_end {
 public:
  link_end(mesh& all, unsigned self, const const_local_mr& registered, connection&& conn)
      : all_{all},
        self_{self},
        conn_{std::move(conn)},
        peer_{unsigned(conn_.peer_private_data()[remote_mr_slice::encoded_bytes])},
        target_{remote_mr_slice::decode(
            bytes{conn_.peer_private_data()}.first(remote_mr_slice::encoded_bytes))},
        operations_{mesh::operations_of(std::min(self, peer_), std::max(self, peer_))},
        pattern_{registered} {}

  task<> live() {
    switch (mesh::use_of(std::min(self_, peer_), std::max(self_, peer_))) {
      case link_use::messages: return exchange();
      case link_use::stream: return stream();
      case link_use::calls: return self_ < peer_ ? serve() : call();
    }
    std::terminate();
  }

 private:
  static constexpr std::uint32_t last = UINT32_MAX;

  [[nodiscard]] remote_mr_slice area() const {
    return target_.slice(words_bytes + peer_slot(self_, peer_) * area_bytes, area_bytes);
  }
  [[nodiscard]] remote_mr_slice word(std::size_t number) const {
    return target_.slice(number * word_distance, sizeof(std::uint64_t));
  }
  /// Returns the number of a writer's area on a host that has none for itself.
  static std::size_t peer_slot(unsigned writer, unsigned host) {
    return writer < host ? writer : writer - 1;
  }

  /// WRITEs, READs of what was written, and atomics.
  task<> reach(connection& conn, unsigned count) {
    local_mr copy = conn.memory().allocate_uninitialized(area_bytes);
    std::uint64_t own_word = 0;
    part written;
    std::size_t at = 0;
    for (unsigned n = 0; n < count; ++n) {
      switch (n == 0 ? 0 : all_.w.random(5)) {
        case 0:
        case 1:
          written = usual_part(all_.w);
          at = all_.w.random(std::min(area_bytes - written.length, offset_max));
          co_await conn.write(written.of(pattern_), area().slice(at, written.length));
          break;
        case 2:
        case 3:
          co_await conn.read(copy.first(written.length), area().slice(at, written.length));
          all_.require(written.is_in(copy.first(written.length).bytes()), "a READ: other bytes");
          break;
        case 4: {
          const std::uint64_t next = all_.w.random(UINT64_MAX);
          const auto before = co_await conn.compare_swap(word(1 + self_), own_word, next);
          all_.require(before == own_word, "a compare-and-swap: another value before");
          own_word = next;
          break;
        }
        default: {
          const std::uint64_t addend = all_.w.random(1000);
          all_.added[peer_] += addend;
          co_await conn.fetch_add(word(0), addend);
        }
      }
    }
    all_.done += count;
  }

  /// The two ends send, and each answers a message by the next one: no more than two are under way.
  task<> exchange_messages(unsigned rounds) {
    for (unsigned n = 0; n <= rounds; ++n) {
      const part sent = n < rounds ? usual_part(all_.w) : part{};
      const std::uint32_t told = n < rounds ? std::uint32_t(sent.offset) : last;
      co_await conn_.send_with_imm(sent.of(pattern_), told);
      const message m = co_await conn_.next_message();
      const bool is_last = m.immediate == last;
      all_.require(is_last == (n == rounds), "a message that was not the next");
      if (is_last) break;  // The peer may have closed.
      all_.require(is_pattern(m.payload().bytes(), *m.immediate), "a message: other bytes");
      conn_.post_recv(m.slices);
    }
    all_.done += rounds;
  }
  task<> exchange() {
    const unsigned mine = operations_ / 2 + (self_ < peer_ ? operations_ % 2 : 0);
    const unsigned rounds = operations_ / 8;
    co_await reach(conn_, mine - rounds);
    co_await exchange_messages(rounds);
    co_await all_.close(conn_);
  }

  task<> send_all(message_stream& to, unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      const part sent = usual_part(all_.w);
      if (all_.w.random(1) == 0) {
        co_await to.send(sent.bytes(), std::uint32_t(sent.offset));
      } else {
        co_await to.send(sent.of(pattern_), std::uint32_t(sent.offset));
      }
    }
    all_.done += count;
  }
  task<> receive_all(message_stream& from, unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      const stream_message m = co_await from.receive();
      all_.require(is_pattern(m.bytes(), *m.immediate()), "a stream's message: other bytes");
    }
  }
  /// Lends memory, which the peer reads, writes and hands over.
  task<> lend(connection& conn, unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      local_mr memory = conn.memory().allocate_uninitialized(4 * kib);
      std::ranges::copy(pattern(n, memory.size_bytes()), memory.bytes().begin());
      loan lent = co_await conn.send_local_mr(std::move(memory));
      loan_end back = co_await lent.ended();
      all_.require(is_pattern(back.memory.bytes(), n + 1), "lent memory: other bytes");
    }
    all_.done += count;
  }
  task<> borrow(connection& conn, unsigned count) {
    local_mr copy = conn.memory().allocate_uninitialized(4 * kib);
    for (unsigned n = 0; n < count; ++n) {
      remote_mr borrowed = co_await conn.receive_remote_mr();
      co_await conn.read(copy.first(borrowed.size_bytes()), borrowed);
      all_.require(is_pattern(copy.bytes(), n), "borrowed memory: other bytes");
      co_await conn.write(pattern_.slice(n + 1, borrowed.size_bytes()), borrowed);
      co_await conn.send_remote_mr(std::move(borrowed));
    }
  }
  /// Asks for memory, writes there and hands it over.
  task<> request(connection& conn, unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      const part written = any_part(all_.w, 64 * kib);
      remote_mr granted = co_await conn.request_remote_mr(written.length);
      co_await conn.write(written.of(pattern_), granted);
      all_.handed_over[self_][peer_].push_back(written);
      co_await conn.send_remote_mr(std::move(granted));
    }
    all_.done += count;
  }
  task<> receive_requested(connection& conn, unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      const local_mr handed = co_await conn.receive_local_mr();
      all_.require(all_.handed_over[peer_][self_][n].is_in(handed.bytes()),
                   "memory that was handed over: other bytes");
    }
  }
  task<> stream() {
    message_stream s{std::move(conn_)};
    const unsigned dialogs = operations_ / 16;
    const unsigned rest = operations_ - 2 * dialogs;
    const bool is_low = self_ < peer_;
    const unsigned mine = rest / 2 + (is_low ? rest % 2 : 0), theirs = rest - mine;
    const auto sent_of = [](unsigned operations) { return operations / 2; };
    connection& conn = s.connection();
    if (is_low) {
      co_await when_all(send_all(s, sent_of(mine)), receive_all(s, sent_of(theirs)),
                        reach(conn, mine - sent_of(mine)), lend(conn, dialogs),
                        receive_requested(conn, dialogs));
    } else {
      co_await when_all(send_all(s, sent_of(mine)), receive_all(s, sent_of(theirs)),
                        reach(conn, mine - sent_of(mine)), borrow(conn, dialogs),
                        request(conn, dialogs));
    }
    co_await s.send(bytes{});
    all_.require((co_await s.receive()).size_bytes() == 0, "a message that was not the last");
    co_await all_.close(s);
  }

  task<> serve() {
    rpc::server server;
    server.handle<mesh_echo>([](bytes said) -> task<bytes> { co_return said; });
    co_await server.serve(std::move(conn_));
  }
  task<> call_all(rpc::client& client, unsigned count) {
    for (unsigned n = 0; n < count; ++n) {
      const part said = usual_part(all_.w);
      const auto heard = co_await client.call<mesh_echo>(said.bytes());
      all_.require(said.is_in(*heard), "a reply: other bytes");
    }
    all_.done += count;
  }
  task<> call() {
    rpc::client client{std::move(conn_)};
    const unsigned calls = operations_ / 3;
    co_await when_all(call_all(client, calls / 2), call_all(client, calls - calls / 2),
                      reach(*client.connection(), operations_ - calls));
    co_await all_.close(client);
  }

  mesh& all_;
  const unsigned self_;
  connection conn_;
  const unsigned peer_;
  const remote_mr_slice target_;
  const unsigned operations_;
  const const_local_mr& pattern_;
};

task<> mesh::live(runtime& rt, unsigned self) {
  const const_local_mr registered = registered_pattern(rt.memory());
  local_mr target =
      reachable_memory(rt).allocate_uninitialized(words_bytes + (mesh_hosts - 1) * area_bytes);
  std::ranges::fill(target.first(words_bytes).bytes(), std::byte{});
  std::array<std::byte, 64> told{};
  std::ranges::copy(target.remote_slice().encode(), told.begin());
  told[remote_mr_slice::encoded_bytes] = std::byte(self);
  agent_options lending;
  lending.lending.bytes_max = 1024 * kib;  // A grant counts until the lender has received it.
  const connection_changes changes{.agent = lending, .private_data = told};
  connection_changes with_receives = changes;
  with_receives.preposted = 2;
  with_receives.preposted_bytes = 256 * kib;
  listener listening = rt.listen(at(self), {}, changes);
  listener for_messages = rt.listen(messages_at(self), {}, with_receives);
  const auto live_on = [&](connection conn) -> task<> {
    link_end end{*this, self, registered, std::move(conn)};
    co_await end.live();
  };
  co_await with_scope([&](scope& links) -> task<> {
    for (unsigned low = 0; low < self; ++low) {
      const bool sends = use_of(low, self) == link_use::messages;
      links.spawn([&, low, sends]() -> task<> {
        const endpoint to = sends ? messages_at(low) : at(low);
        connection conn = co_await connect_patiently(rt, to, sends ? with_receives : changes);
        co_await live_on(std::move(conn));
      });
    }
    for (unsigned high = self + 1; high < mesh_hosts; ++high) {
      listener& from = use_of(self, high) == link_use::messages ? for_messages : listening;
      links.spawn([&live_on, &from]() -> task<> {
        connection conn = co_await from.accept();
        co_await live_on(std::move(conn));
      });
    }
    co_return;
  });
  require(target.first(8).as<std::uint64_t>()[0] == added[self], "fetch-and-add: another sum");
}

}  // namespace

void play_standard(sim::world& w) {
  w.forbid_receiver_not_ready();
  const auto all = start_all<mesh>(w, mesh_hosts);
  w.run(1min);
  all->require(all->done == mesh_operations, "not all operations were done");
}

}  // namespace cordma::test
