#include "c/c_pair.hpp"
#include "support/skip.hpp"

#include <support/allocations.hpp>

#include <cstring>
#include <thread>

using namespace cordma::test;

extern "C" int c_says_hello(const char* device, const char* address);

TEST_CASE("a program in C11 sends a message", "[c][device]") {
  const c_server server;
  int status = -1;
  std::thread client{[&] { status = c_says_hello(device_name().c_str(), server.address.c_str()); }};
  cordma_connection connection = nullptr;
  CHECK(cordma_accept(server.listener, long_us, &connection) == CORDMA_OK);
  std::array<char, 32> text{};
  cordma_message about{};
  CHECK(cordma_receive(connection, text.data(), text.size(), &about, long_us) == CORDMA_OK);
  client.join();
  CHECK(status == CORDMA_OK);
  CHECK(std::string(text.data(), about.bytes) == "hello from C");
}

TEST_CASE("a message that a client sent before it was accepted is there", "[c][device]") {
  const c_server server;
  const c_context client;
  const c_memory memory{client, 64};
  memory.put("early");
  cordma_connection here = nullptr;
  CHECK_OK(cordma_connect(client, server.address.c_str(), long_us, &here));
  CHECK_OK(cordma_send(here, memory, 0, 5, long_us));
  const cordma_connection there = server.accept();
  std::array<char, 16> text{};
  CHECK_OK(cordma_receive(there, text.data(), text.size(), nullptr, long_us));
  CHECK(std::string(text.data()) == "early");
}

namespace {

/// Waits until another thread's call receives from the connection.
bool is_received_from(cordma_connection connection) {
  char text = 0;
  int status = CORDMA_TIMED_OUT;
  for (int n = 0; n < 100'000 && status == CORDMA_TIMED_OUT; ++n)
    status = cordma_receive(connection, &text, 1, nullptr, 0);
  return status == CORDMA_WRONG_STATE;
}

/// Receives 4 bytes at most, on a thread of its own.
class receiving_thread {
 public:
  explicit receiving_thread(cordma_connection from)
      : thread_{[this, from] {
          do {  // `is_received_from` may be before.
            status_ = cordma_receive(from, text_.data(), text_.size(), nullptr, CORDMA_FOREVER);
          } while (status_ == CORDMA_WRONG_STATE);
        }} {}
  int join() {
    thread_.join();
    return status_;
  }

 private:
  std::array<char, 4> text_{};
  int status_ = -1;
  std::thread thread_;
};

}  // namespace

TEST_CASE("while one call receives from a connection, nobody else does", "[c][device]") {
  const c_pair both;
  const c_memory memory{both.client, 8}, theirs{both.server.context, 16};
  receiving_thread first{both.there};
  CHECK(is_received_from(both.there));
  CHECK_THAT(cordma_error_text(), Catch::Contains("one receives at a time"));
  const auto ignore = [](cordma_connection, const void*, const cordma_message*, void*) {};
  CHECK(cordma_set_receive_callback(both.there, ignore, nullptr, nullptr) == CORDMA_WRONG_STATE);
  std::array<char, 16> into{};
  const std::array<cordma_connection, 2> peers{both.there, nullptr};
  CHECK(cordma_all_to_all(peers.data(), 2, theirs, 0, into.data(), 8, 0) == CORDMA_WRONG_STATE);
  memory.put("12345678");
  const int sent = cordma_send(both.here, memory, 0, 8, long_us);
  CHECK(first.join() == CORDMA_WRONG_LENGTH);
  CHECK(sent == CORDMA_OK);
  CHECK(both.received_there(0) == "12345678");  // The longer message is there for the next call.
}

TEST_CASE("a peer that is named twice in an all-to-all is refused", "[c][device]") {
  const c_pair both;
  const c_memory memory{both.client, 16};
  std::array<char, 16> into{};
  const std::array<cordma_connection, 2> peers{both.here, both.here};
  CHECK(cordma_all_to_all(peers.data(), 2, memory, 0, into.data(), 8, 0) == CORDMA_WRONG_STATE);
  CHECK(cordma_receive(both.here, into.data(), 16, nullptr, 0) == CORDMA_TIMED_OUT);
}

TEST_CASE("a receive ends as its connection does: disconnected, or closed if that was late",
          "[c][device]") {
  const c_pair both{on_device(CORDMA_THREAD)};
  SECTION("a goodbye that the peer answers") {
    receiving_thread waits{both.there};
    CHECK(is_received_from(both.there));
    CHECK(cordma_disconnect(both.there, long_us) == CORDMA_OK);
    CHECK(waits.join() == CORDMA_DISCONNECTED);
  }
  SECTION("a goodbye that a peer who does not run cannot answer") {
    const c_context idle;
    cordma_connection here = nullptr;
    CHECK_OK(cordma_connect(idle, both.server.address.c_str(), long_us, &here));
    const cordma_connection there = both.server.accept();
    receiving_thread waits{there};
    CHECK(is_received_from(there));
    CHECK(cordma_disconnect(there, 1'000) == CORDMA_TIMED_OUT);
    CHECK(waits.join() == CORDMA_CLOSED);
  }
}

TEST_CASE("an accept whose listener is closed meanwhile is closed", "[c][device]") {
  const c_pair both;
  const c_memory memory{both.client, 8};
  cordma_listener listener = nullptr;
  CHECK_OK(cordma_listen(both.client, nullptr, &listener));
  cordma_work work{};
  work.kind = CORDMA_SEND;
  work.memory = memory;
  work.bytes = 8;
  const auto close = [](cordma_connection, int, std::uint64_t, void* user) {
    static_cast<void>(cordma_close(*static_cast<cordma_listener*>(user)));
  };
  CHECK_OK(cordma_post(both.here, &work, long_us, close, &listener));
  cordma_connection made = nullptr;
  CHECK(cordma_accept(listener, long_us, &made) == CORDMA_CLOSED);
}

TEST_CASE("messages arrive in order, with and without an immediate", "[c][device]") {
  const c_pair both;
  const c_memory memory{both.client, 64};
  memory.put("first second");
  CHECK_OK(cordma_send(both.here, memory, 0, 5, long_us));
  CHECK_OK(cordma_send_immediate(both.here, memory, 6, 6, 42, long_us));
  CHECK(both.received_there() == "first");
  std::array<char, 16> text{};
  cordma_message about{};
  CHECK_OK(cordma_receive(both.there, text.data(), text.size(), &about, long_us));
  CHECK(std::string(text.data()) == "second");
  CHECK(about.bytes == 6);
  CHECK(about.has_immediate == 1);
  CHECK(about.immediate == 42);
  CHECK(about.is_write == 0);
}

TEST_CASE("more messages than there are receive buffers arrive one by one", "[c][device]") {
  cordma_options few = on_device(CORDMA_THREAD);
  few.receives = 2;
  const c_pair both{on_device(), few};
  const c_memory memory{both.client, 64};
  for (int i = 0; i < 10; ++i) {
    const std::string text = std::to_string(i);
    memory.put(text);
    CHECK_OK(cordma_send(both.here, memory, 0, text.size(), long_us));
    CHECK(both.received_there() == text);
  }
}

TEST_CASE("a write, a read and atomics reach the peer's memory", "[c][device]") {
  const c_pair both;
  const c_memory mine{both.client, 64};
  const c_memory theirs{both.server.context, 64,
                        CORDMA_REMOTE_READ | CORDMA_REMOTE_WRITE | CORDMA_REMOTE_ATOMIC};
  cordma_remote remote = both.named(theirs);
  std::uint64_t bytes = 0;
  CHECK_OK(cordma_remote_bytes(remote, &bytes));
  CHECK(bytes == 64);
  mine.put("written");
  CHECK_OK(cordma_write(both.here, mine, 0, 7, remote, 16, long_us));
  CHECK(std::string(theirs.text + 16, 7) == "written");
  CHECK_OK(cordma_read(both.here, mine, 32, 7, remote, 16, long_us));
  CHECK(std::string(mine.text + 32, 7) == "written");
  std::uint64_t before = 1;
  CHECK_OK(cordma_fetch_add(both.here, remote, 0, 5, &before, long_us));
  CHECK(before == 0);
  CHECK_OK(cordma_compare_swap(both.here, remote, 0, 5, 9, &before, long_us));
  CHECK(before == 5);
  CHECK_OK(cordma_fetch_add(both.here, remote, 0, 1, nullptr, long_us));
  std::uint64_t now = 0;
  std::memcpy(&now, theirs.text, sizeof now);
  CHECK(now == 10);
}

TEST_CASE("a write with an immediate completes a receive of the peer", "[c][device]") {
  const c_pair both;
  const c_memory mine{both.client, 64};
  const c_memory theirs{both.server.context, 64, CORDMA_REMOTE_WRITE};
  mine.put("written");
  CHECK_OK(cordma_write_immediate(both.here, mine, 0, 7, both.named(theirs), 0, 7, long_us));
  cordma_message about{};
  CHECK_OK(cordma_receive(both.there, nullptr, 0, &about, long_us));
  CHECK(about.is_write == 1);
  CHECK(about.bytes == 7);
  CHECK(about.immediate == 7);
  CHECK(std::string(theirs.text, 7) == "written");
}

TEST_CASE("a receive that is late loses no message", "[c][device]") {
  const c_pair both;
  std::array<char, 16> text{};
  cordma_message about{};
  const auto now = GENERATE(std::int64_t{0}, std::int64_t{100});
  CHECK(cordma_receive(both.here, text.data(), text.size(), &about, now) == CORDMA_TIMED_OUT);
  CHECK_THAT(cordma_error_text(), Catch::Contains("deadline passed"));
  const c_memory memory{both.server.context, 64};
  memory.put("late");
  CHECK_OK(cordma_send(both.there, memory, 0, 4, long_us));
  CHECK_OK(cordma_receive(both.here, text.data(), text.size(), &about, long_us));
  CHECK(std::string(text.data(), about.bytes) == "late");
}

TEST_CASE("an accept without a client is late, and takes the next one", "[c][device]") {
  const c_context context{CORDMA_CALLS};
  cordma_listener listener = nullptr;
  CHECK_OK(cordma_listen(context, nullptr, &listener));
  cordma_connection made = nullptr;
  CHECK(cordma_accept(listener, 1000, &made) == CORDMA_TIMED_OUT);
  CHECK(made == nullptr);
  std::array<char, 64> address{};
  CHECK_OK(cordma_address(listener, address.data(), address.size()));
  const c_context client{CORDMA_THREAD};
  CHECK_OK(cordma_start_connect(
      client, address.data(), long_us, [](cordma_connection, int, void*) {}, nullptr));
  CHECK_OK(cordma_accept(listener, long_us, &made));
}

TEST_CASE("a message that is longer than the room stays the next one", "[c][device]") {
  const c_pair both;
  const c_memory memory{both.client, 64};
  memory.put("a long message");
  CHECK_OK(cordma_send(both.here, memory, 0, 14, long_us));
  std::array<char, 16> text{};
  cordma_message about{};
  CHECK(cordma_receive(both.there, text.data(), 4, &about, long_us) == CORDMA_WRONG_LENGTH);
  CHECK_THAT(cordma_error_text(), Catch::Contains("14 bytes"));
  CHECK(about.bytes == 14);
  CHECK(both.received_there() == "a long message");
}

TEST_CASE("a message that the peer has no room for is refused before it is sent", "[c][device]") {
  cordma_options small = on_device(CORDMA_THREAD);
  small.receive_bytes = 32;
  const c_pair both{on_device(), small};
  const c_memory memory{both.client, 64};
  CHECK(cordma_send(both.here, memory, 0, 33, long_us) == CORDMA_WRONG_LENGTH);
  CHECK_THAT(cordma_error_text(), Catch::Contains("33 bytes") && Catch::Contains("32"));
  CHECK_OK(cordma_send(both.here, memory, 0, 32, long_us));
  CHECK(both.received_there().size() == 32);
}

TEST_CASE("a peer that disconnects ends what waits", "[c][device]") {
  const c_pair both;
  CHECK_OK(cordma_disconnect(both.there, long_us));
  std::array<char, 16> text{};
  CHECK(cordma_receive(both.here, text.data(), text.size(), nullptr, long_us) ==
        CORDMA_DISCONNECTED);
  const c_memory memory{both.client, 64};
  CHECK(cordma_send(both.here, memory, 0, 4, long_us) == CORDMA_DISCONNECTED);
  CHECK_OK(cordma_disconnect(both.here, long_us));
}

TEST_CASE("transfers allocate nothing once warm", "[c][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  const c_pair both;
  const c_memory mine{both.client, 64};
  const c_memory theirs{both.server.context, 64, CORDMA_REMOTE_WRITE | CORDMA_REMOTE_READ};
  cordma_remote remote = both.named(theirs);
  const auto transfer = [&] {
    CHECK_OK(cordma_write(both.here, mine, 0, 8, remote, 0, long_us));
    CHECK_OK(cordma_read(both.here, mine, 0, 8, remote, 0, long_us));
    CHECK_OK(cordma_send(both.here, mine, 0, 8, long_us));
    std::array<char, 16> text{};
    CHECK_OK(cordma_receive(both.there, text.data(), text.size(), nullptr, long_us));
  };
  for (int i = 0; i < 300; ++i) transfer();
  const auto before = support::allocation_count();
  std::array<char, 16> text{};
  int failures = 0;
  for (int i = 0; i < 300; ++i) {
    failures += cordma_write(both.here, mine, 0, 8, remote, 0, long_us);
    failures += cordma_read(both.here, mine, 0, 8, remote, 0, long_us);
    failures += cordma_send(both.here, mine, 0, 8, long_us);
    failures += cordma_receive(both.there, text.data(), text.size(), nullptr, long_us);
  }
  CHECK(support::allocation_count() == before);
  CHECK(failures == 0);
}
