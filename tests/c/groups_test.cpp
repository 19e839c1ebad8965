#include "c/c_pair.hpp"

#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

using namespace cordma::test;

namespace {

constexpr std::size_t block_bytes = 64;

/// A member of a set: a context with its own thread, and a connection to each other member.
struct member {
  explicit member(const cordma_options& options = on_device(CORDMA_THREAD)) : own{options} {}
  c_server own;
  std::vector<cordma_connection> peers;
};

/// Connects each pair of members.
std::vector<std::unique_ptr<member>> made_set(std::size_t count) {
  std::vector<std::unique_ptr<member>> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(std::make_unique<member>());
    all.back()->peers.resize(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = i + 1; j < count; ++j) {
      CHECK_OK(cordma_connect(all[j]->own.context, all[i]->own.address.c_str(), long_us,
                              &all[j]->peers[i]));
      all[i]->peers[j] = all[i]->own.accept();
    }
  }
  return all;
}

/// Connects to the members before `self`, and sends to each which member this is.
int call_those_before(const std::vector<std::unique_ptr<member>>& set, std::size_t self) {
  member& m = *set[self];
  cordma_memory memory = nullptr;
  void* at = nullptr;
  int status = cordma_allocate(m.own.context, sizeof self, CORDMA_LOCAL, &memory, &at);
  if (status == CORDMA_OK) std::memcpy(at, &self, sizeof self);
  for (std::size_t i = 0; i < self && status == CORDMA_OK; ++i) {
    status = cordma_connect(m.own.context, set[i]->own.address.c_str(), long_us, &m.peers[i]);
    if (status == CORDMA_OK) status = cordma_send(m.peers[i], memory, 0, sizeof self, long_us);
  }
  return status;
}

/// Accepts the members behind `self`, who say which they are.
int accept_those_behind(member& m, std::size_t self) {
  int status = CORDMA_OK;
  for (std::size_t n = self + 1; n < m.peers.size() && status == CORDMA_OK; ++n) {
    cordma_connection made = nullptr;
    std::size_t rank = 0;
    status = cordma_accept(m.own.listener, long_us, &made);
    if (status == CORDMA_OK) status = cordma_receive(made, &rank, sizeof rank, nullptr, long_us);
    if (status == CORDMA_OK) m.peers.at(rank) = made;
  }
  return status;
}

/// Returns what member `from` sends to member `to` in a round.
std::string block(std::size_t from, std::size_t to, int round) {
  std::string text =
      std::to_string(from) + " to " + std::to_string(to) + " in " + std::to_string(round);
  text.resize(block_bytes, '.');
  return text;
}

/// Takes part in some rounds of all-to-all; returns the first status that is not 0.
int take_part(const member& m, std::size_t self, int rounds, std::string& wrong) {
  const std::size_t count = m.peers.size();
  cordma_memory memory = nullptr;
  void* at = nullptr;
  std::string into(count * block_bytes, '\0');
  int status = cordma_allocate(m.own.context, count * block_bytes, CORDMA_LOCAL, &memory, &at);
  for (int round = 0; round < rounds && status == CORDMA_OK; ++round) {
    for (std::size_t to = 0; to < count; ++to)
      std::memcpy(static_cast<char*>(at) + to * block_bytes, block(self, to, round).data(),
                  block_bytes);
    status = cordma_all_to_all(m.peers.data(), count, memory, 0, into.data(), block_bytes, long_us);
    for (std::size_t from = 0; from < count && status == CORDMA_OK; ++from) {
      const std::string got = into.substr(from * block_bytes, block_bytes);
      if (got != block(from, self, round)) wrong = got;
    }
  }
  return status;
}

}  // namespace

TEST_CASE("three members exchange all blocks, round after round", "[c][device]") {
  const auto set = made_set(3);
  std::array<int, 3> statuses{};
  std::array<std::string, 3> wrong;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] { statuses[i] = take_part(*set[i], i, 20, wrong[i]); });
  for (auto& one : threads) one.join();
  CHECK(statuses == std::array<int, 3>{});
  CHECK(wrong == std::array<std::string, 3>{});
}

TEST_CASE("64 members send as soon as they are connected, and exchange all blocks", "[c][device]") {
  const std::size_t count = is_rxe() ? 8 : 64;  // An emulated processor is slow.
  cordma_options options = on_device(CORDMA_THREAD);
  options.receives = 2;  // The first message, and a block.
  options.receive_bytes = block_bytes;
  std::vector<std::unique_ptr<member>> set;
  for (std::size_t i = 0; i < count; ++i) {
    set.push_back(std::make_unique<member>(options));
    set.back()->peers.resize(count);
  }
  std::vector<int> statuses(count);
  std::vector<std::string> wrong(count);
  std::barrier connected{std::ptrdiff_t(count)}, done{std::ptrdiff_t(count)};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      statuses[i] = call_those_before(set, i);
      connected.arrive_and_wait();  // All have sent before anybody accepts.
      if (statuses[i] == CORDMA_OK) statuses[i] = accept_those_behind(*set[i], i);
      if (statuses[i] == CORDMA_OK) statuses[i] = take_part(*set[i], i, 2, wrong[i]);
      done.arrive_and_wait();
    });
  for (auto& one : threads) one.join();
  CHECK(statuses == std::vector<int>(count));
  CHECK(wrong == std::vector<std::string>(count));
}

TEST_CASE("a broadcast reaches each peer", "[c][device]") {
  const auto set = made_set(3);
  const c_memory memory{set[0]->own.context, 64};
  memory.put("to all");
  CHECK_OK(cordma_broadcast(set[0]->peers.data(), 3, memory, 0, 6, long_us));
  for (std::size_t i = 1; i < 3; ++i) {
    std::array<char, 16> text{};
    CHECK_OK(cordma_receive(set[i]->peers[0], text.data(), text.size(), nullptr, long_us));
    CHECK(std::string(text.data()) == "to all");
  }
}

TEST_CASE("a broadcast goes to peers whose messages a callback takes; an all-to-all does not",
          "[c][device]") {
  const auto set = made_set(2);
  const c_memory memory{set[0]->own.context, 2 * block_bytes};
  memory.put("to all");
  const auto ignore = [](cordma_connection, const void*, const cordma_message*, void*) {};
  CHECK_OK(cordma_set_receive_callback(set[0]->peers[1], ignore, nullptr, nullptr));
  CHECK_OK(cordma_broadcast(set[0]->peers.data(), 2, memory, 0, 6, long_us));
  std::array<char, 2 * block_bytes> text{};
  CHECK_OK(cordma_receive(set[1]->peers[0], text.data(), text.size(), nullptr, long_us));
  CHECK(std::string(text.data()) == "to all");
  CHECK(cordma_all_to_all(set[0]->peers.data(), 2, memory, 0, text.data(), block_bytes, long_us) ==
        CORDMA_WRONG_STATE);
}

TEST_CASE("an all-to-all in which a member is missing is late, or finds it gone", "[c][device]") {
  const auto set = made_set(2);
  const c_memory memory{set[0]->own.context, 2 * block_bytes};
  std::array<char, 2 * block_bytes> into{};
  CHECK(cordma_all_to_all(set[0]->peers.data(), 2, memory, 0, into.data(), block_bytes, 10'000) ==
        CORDMA_TIMED_OUT);
  CHECK_OK(cordma_disconnect(set[1]->peers[0], long_us));
  CHECK(cordma_all_to_all(set[0]->peers.data(), 2, memory, 0, into.data(), block_bytes, long_us) ==
        CORDMA_DISCONNECTED);
}

TEST_CASE("an all-to-all with wrong arguments touches nobody", "[c][device]") {
  const auto set = made_set(2);
  const c_memory memory{set[0]->own.context, 2 * block_bytes};
  const auto& peers = set[0]->peers;
  std::array<char, 4 * block_bytes> into{};
  // Without a deadline, which a call could reach before the context's thread has begun it.
  const auto call = [&](const cordma_connection* to, void* bytes_into, std::size_t bytes) {
    return cordma_all_to_all(to, 2, memory, 0, bytes_into, bytes, -1);
  };
  CHECK(call(nullptr, into.data(), 8) == CORDMA_BAD_ARGUMENT);
  CHECK(call(peers.data(), nullptr, 8) == CORDMA_BAD_ARGUMENT);
  CHECK(call(peers.data(), into.data(), SIZE_MAX) == CORDMA_BAD_ARGUMENT);
  CHECK(call(peers.data(), into.data(), block_bytes + 1) == CORDMA_OUT_OF_RANGE);
  std::string wrong;
  std::thread other{[&] { static_cast<void>(take_part(*set[1], 1, 1, wrong)); }};
  CHECK(take_part(*set[0], 0, 1, wrong) == CORDMA_OK);
  other.join();
  CHECK(wrong.empty());
}
