#include "c/c_pair.hpp"
#include "support/skip.hpp"

#include <support/allocations.hpp>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma::test;

namespace {

/// The value that a callback got, for another thread, which may destroy it then.
template <class T>
class told {
 public:
  void set(T value) {
    const std::lock_guard lock{mutex_};
    value_ = value;
    came_.notify_one();
  }
  /// Waits for the value.
  T get() {
    std::unique_lock lock{mutex_};
    came_.wait(lock, [this] { return value_.has_value(); });
    return *value_;
  }
  [[nodiscard]] bool is_set() {
    const std::lock_guard lock{mutex_};
    return value_.has_value();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<T> value_;
};

using ended = std::pair<int, std::uint64_t>;

int posted(cordma_connection on, const cordma_work& work, told<ended>& to,
           std::int64_t timeout_us = long_us) {
  return cordma_post(
      on, &work, timeout_us,
      [](cordma_connection, int status, std::uint64_t value, void* user) {
        static_cast<told<ended>*>(user)->set(ended{status, value});
      },
      &to);
}

ended outcome_of(cordma_connection on, const cordma_work& work) {
  told<ended> it;
  CHECK_OK(posted(on, work, it));
  return it.get();
}

/// A server that answers each message with the same bytes, and counts what it is told.
struct echo {
  static void on_message(cordma_connection c, const void* data, const cordma_message* about,
                         void* user) {
    auto& self = *static_cast<echo*>(user);
    ++self.messages;
    if (about->is_write != 0) return;
    std::memcpy(self.memory->text, data, about->bytes);
    cordma_work work{};
    work.kind = about->has_immediate != 0 ? CORDMA_SEND_IMMEDIATE : CORDMA_SEND;
    work.immediate = about->immediate;
    work.memory = *self.memory;
    work.bytes = about->bytes;
    self.status = cordma_post(c, &work, long_us, nullptr, nullptr);
    self.blocked = cordma_send(c, *self.memory, 0, 1, long_us);
  }
  static void on_failure(cordma_connection, int status, void* user) {
    static_cast<echo*>(user)->failure.set(status);
  }
  static void on_client(cordma_listener, cordma_connection c, int status, void* user) {
    auto& self = *static_cast<echo*>(user);
    self.status = status != CORDMA_OK
                      ? status
                      : cordma_set_receive_callback(c, &on_message, &on_failure, &self);
    self.client.set(c);
  }
  explicit echo(const c_server& at)
      : context{at.context}, memory{std::make_unique<c_memory>(at.context, 4096)} {
    CHECK_OK(cordma_set_accept_callback(at.listener, &on_client, this));
    CHECK_OK(cordma_start(at.listener));
  }

  /// Ends the callbacks, which use this object.
  ~echo() { cordma_release(context, long_us); }
  echo(const echo&) = delete;
  echo& operator=(const echo&) = delete;

  cordma_context context;
  std::unique_ptr<c_memory> memory;
  int status = -1;
  int blocked = -1;
  int messages = 0;
  told<int> failure;
  told<cordma_connection> client;
};

struct echo_client {
  c_server server;
  echo answers{server};
  c_context own;
  cordma_connection connection = nullptr;
  c_memory memory{own, 64};
  echo_client() { CHECK_OK(cordma_connect(own, server.address.c_str(), long_us, &connection)); }
  std::string answer() const {
    std::array<char, 64> text{};
    cordma_message about{};
    CHECK_OK(cordma_receive(connection, text.data(), text.size(), &about, long_us));
    return std::string(text.data(), about.bytes) +
           (about.has_immediate != 0 ? "#" + std::to_string(about.immediate) : "");
  }
};

}  // namespace

TEST_CASE("callbacks accept a client and answer its messages", "[c][device]") {
  echo_client client;
  client.memory.put("echo this");
  CHECK_OK(cordma_send(client.connection, client.memory, 0, 9, long_us));
  CHECK(client.answer() == "echo this");
  CHECK_OK(cordma_send_immediate(client.connection, client.memory, 0, 4, 17, long_us));
  CHECK(client.answer() == "echo#17");
  CHECK_OK(cordma_disconnect(client.connection, long_us));
  CHECK(client.answers.failure.get() == CORDMA_DISCONNECTED);
  CHECK(client.answers.messages == 2);
  CHECK(client.answers.status == CORDMA_OK);
  CHECK(client.answers.blocked == CORDMA_IN_CALLBACK);
}

TEST_CASE("a callback waits for no other context", "[c][device]") {
  // The sides have a thread each, whose callbacks would wait for each other.
  const c_pair threads{on_device(CORDMA_THREAD)};
  const c_memory memory{threads.client, 64};
  struct state {
    cordma_context other;
    cordma_connection of_other;
    told<std::array<int, 4>> statuses;
  } seen{threads.client, threads.here, {}};
  CHECK_OK(cordma_set_receive_callback(
      threads.there,
      [](cordma_connection, const void*, const cordma_message*, void* user) {
        auto& self = *static_cast<state*>(user);
        cordma_listener made = nullptr;
        char text = 0;
        self.statuses.set({cordma_listen(self.other, nullptr, &made),
                           cordma_receive(self.of_other, &text, 1, nullptr, long_us),
                           cordma_disconnect(self.of_other, long_us),
                           cordma_release(self.other, long_us)});
      },
      nullptr, &seen));
  CHECK_OK(cordma_send(threads.here, memory, 0, 8, long_us));
  constexpr int refused = CORDMA_IN_CALLBACK;
  CHECK(seen.statuses.get() == std::array<int, 4>{refused, refused, refused, refused});
}

TEST_CASE("a callback runs no other context of its thread", "[c][device]") {
  const c_pair both;
  c_context other;
  const c_memory memory{both.client, 64}, theirs{both.server.context, 64};
  cordma_connection of_other = nullptr;
  CHECK_OK(cordma_connect(other, both.server.address.c_str(), long_us, &of_other));
  cordma_listener listener = nullptr;
  CHECK_OK(cordma_listen(other, nullptr, &listener));
  struct state {
    cordma_context other;
    cordma_connection of_other;
    cordma_listener listener;
    int received = -1;
    int released = -1;
    int closed = -1;
  } seen{other, of_other, listener};
  CHECK_OK(cordma_start_connect(
      both.client, "unix:@cordma-c-nobody", long_us,
      [](cordma_connection, int, void* user) {
        auto& self = *static_cast<state*>(user);
        char text = 0;
        self.received = cordma_receive(self.of_other, &text, 1, nullptr, 0);
        self.released = cordma_release(self.other, long_us);
        self.closed = cordma_close(self.listener);
      },
      &seen));
  CHECK_OK(cordma_send(both.there, theirs, 0, 8, long_us));
  char text[8];
  while (seen.closed == -1) {
    const int status = cordma_receive(both.here, text, sizeof text, nullptr, 1000);
    REQUIRE((status == CORDMA_OK || status == CORDMA_TIMED_OUT));
  }
  CHECK(seen.received == CORDMA_IN_CALLBACK);
  CHECK(seen.released == CORDMA_IN_CALLBACK);
  CHECK(seen.closed == CORDMA_OK);
}

TEST_CASE("messages that go to a callback are not received otherwise", "[c][device]") {
  echo_client client;
  cordma_connection there = client.answers.client.get();
  char text = 0;
  CHECK(cordma_receive(there, &text, 1, nullptr, long_us) == CORDMA_WRONG_STATE);
  CHECK(cordma_set_receive_callback(there, &echo::on_message, nullptr, nullptr) ==
        CORDMA_WRONG_STATE);
  cordma_connection made = nullptr;
  CHECK(cordma_accept(client.server.listener, long_us, &made) == CORDMA_WRONG_STATE);
  CHECK(cordma_start(client.server.listener) == CORDMA_WRONG_STATE);
}

TEST_CASE("a listener is stopped, and started again", "[c][device]") {
  const c_server server;
  CHECK(cordma_stop(server.listener) == CORDMA_WRONG_STATE);
  CHECK(cordma_start(server.listener) == CORDMA_WRONG_STATE);
  echo first{server};
  CHECK_OK(cordma_stop(server.listener));
  CHECK(cordma_stop(server.listener) == CORDMA_WRONG_STATE);
  echo second{server};
  const c_context client{CORDMA_CALLS};
  cordma_connection made = nullptr;
  CHECK_OK(cordma_connect(client, server.address.c_str(), long_us, &made));
  CHECK(second.client.get() != nullptr);
}

TEST_CASE("each kind of posted request tells its end", "[c][device]") {
  const c_pair both{on_device(CORDMA_THREAD)};
  const c_memory mine{both.client, 64};
  const c_memory theirs{both.server.context, 64,
                        CORDMA_REMOTE_READ | CORDMA_REMOTE_WRITE | CORDMA_REMOTE_ATOMIC};
  mine.put("posted");
  cordma_work work{};
  work.memory = mine;
  work.bytes = 6;
  work.remote = both.named(theirs);
  work.at = 16;
  work.kind = CORDMA_WRITE;
  CHECK(outcome_of(both.here, work) == ended{CORDMA_OK, 6});
  CHECK(std::string(theirs.text + 16, 6) == "posted");
  work.kind = CORDMA_READ;
  work.offset = 32;
  CHECK(outcome_of(both.here, work) == ended{CORDMA_OK, 6});
  CHECK(std::string(mine.text + 32, 6) == "posted");
  work.kind = CORDMA_SEND;
  CHECK(outcome_of(both.here, work) == ended{CORDMA_OK, 6});
  CHECK(both.received_there() == "posted");
  work.kind = CORDMA_WRITE_IMMEDIATE;
  work.immediate = 3;
  CHECK(outcome_of(both.here, work) == ended{CORDMA_OK, 6});
  cordma_message about{};
  CHECK_OK(cordma_receive(both.there, nullptr, 0, &about, long_us));
  CHECK(about.immediate == 3);
  work.kind = CORDMA_FETCH_ADD;
  work.at = 0;
  work.operand = 4;
  CHECK(outcome_of(both.here, work) == ended{CORDMA_OK, 0});
  work.kind = CORDMA_COMPARE_SWAP;
  work.expected = 4;
  CHECK(outcome_of(both.here, work) == ended{CORDMA_OK, 4});
}

TEST_CASE("posted requests allocate nothing once warm", "[c][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  const c_pair both{on_device(CORDMA_THREAD)};
  const c_memory mine{both.client, 64};
  const c_memory theirs{both.server.context, 64, CORDMA_REMOTE_WRITE};
  cordma_work work{};
  work.kind = CORDMA_WRITE;
  work.memory = mine;
  work.bytes = 8;
  work.remote = both.named(theirs);
  constexpr int at_once = 16;
  struct told_counts {
    const cordma_work& work;
    std::atomic<int> ended{0};
    std::atomic<int> failures{0};
  } seen{work};
  constexpr cordma_completed* count = [](cordma_connection, int status, std::uint64_t, void* user) {
    auto& counts = *static_cast<told_counts*>(user);
    counts.failures += status;
    ++counts.ended;
  };
  const auto post_some = [&](cordma_completed* completed, int posts, int ends) {
    const int until = seen.ended + ends;
    for (int i = 0; i < posts; ++i)
      seen.failures += cordma_post(both.here, &work, long_us, completed, &seen);
    while (seen.ended < until) std::this_thread::yield();
  };
  // A callback holds up the ends of what it posts, so that all are open at once.
  post_some(
      [](cordma_connection here, int status, std::uint64_t value, void* user) {
        auto& counts = *static_cast<told_counts*>(user);
        for (int i = 0; i < at_once; ++i)
          counts.failures += cordma_post(here, &counts.work, long_us, count, user);
        count(here, status, value, user);
      },
      1, at_once + 1);
  for (int i = 0; i < 30; ++i) post_some(count, at_once, at_once);
  const auto before = support::allocation_count();
  for (int i = 0; i < 30; ++i) post_some(count, at_once, at_once);
  CHECK(support::allocation_count() == before);
  CHECK(seen.failures == 0);
}

TEST_CASE("what is wrong with a request shows before it is posted", "[c][device]") {
  const c_pair both{on_device(CORDMA_THREAD)};
  const c_memory mine{both.client, 64};
  told<ended> never;
  cordma_work work{};
  CHECK(cordma_post(both.here, nullptr, long_us, nullptr, nullptr) == CORDMA_BAD_ARGUMENT);
  CHECK(posted(both.here, work, never) == CORDMA_BAD_ARGUMENT);
  work.kind = CORDMA_SEND;
  CHECK(posted(both.here, work, never) == CORDMA_BAD_HANDLE);
  work.memory = mine;
  work.bytes = 65;
  CHECK(posted(both.here, work, never) == CORDMA_OUT_OF_RANGE);
  CHECK_OK(cordma_disconnect(both.there, long_us));
  char text = 0;
  CHECK(cordma_receive(both.here, &text, 1, nullptr, long_us) == CORDMA_DISCONNECTED);
  work.bytes = 1;
  CHECK(posted(both.here, work, never) == CORDMA_DISCONNECTED);
  CHECK_FALSE(never.is_set());
}

TEST_CASE("a release tells the end of all that is posted", "[c][device]") {
  c_pair both{on_device(CORDMA_THREAD)};
  const c_memory mine{both.client, 4096};
  cordma_work work{};
  work.kind = CORDMA_SEND;
  work.memory = mine;
  work.bytes = 64;
  // More than the peer has receives for: the last ones wait for it.
  std::vector<told<ended>> all(80);
  for (auto& one : all) CHECK_OK(posted(both.here, work, one));
  CHECK_OK(cordma_release(std::as_const(both.client), 1000));
  std::size_t told_count = 0;
  for (auto& one : all) told_count += one.is_set() ? 1u : 0u;
  CHECK(told_count == all.size());
}

TEST_CASE("a connect in the background tells its end, whatever it is", "[c][device]") {
  const c_server server;
  const c_context client{CORDMA_THREAD};
  using outcome = std::pair<cordma_connection, int>;
  const auto connected = [](cordma_connection made, int status, void* user) {
    static_cast<told<outcome>*>(user)->set(outcome{made, status});
  };
  told<outcome> good, bad;
  CHECK_OK(cordma_start_connect(client, server.address.c_str(), long_us, connected, &good));
  CHECK_OK(cordma_start_connect(client, "unix:@cordma-c-nobody", long_us, connected, &bad));
  const outcome made = good.get();
  CHECK(made.second == CORDMA_OK);
  CHECK_OK(cordma_disconnect(made.first, long_us));
  CHECK(bad.get() == outcome{nullptr, CORDMA_ERRNO + ECONNREFUSED});
  CHECK(cordma_start_connect(client, "nonsense", long_us, connected, &bad) ==
        CORDMA_ERRNO + EINVAL);
}

TEST_CASE("a callback may disconnect its own connection", "[c][device]") {
  const c_pair both{on_device(CORDMA_THREAD)};
  told<int> left;
  CHECK_OK(cordma_set_receive_callback(
      both.there,
      [](cordma_connection c, const void*, const cordma_message*, void* user) {
        static_cast<told<int>*>(user)->set(cordma_disconnect(c, long_us));
      },
      nullptr, &left));
  const c_memory memory{both.client, 64};
  CHECK_OK(cordma_send(both.here, memory, 0, 8, long_us));
  CHECK(left.get() == CORDMA_OK);
  char text = 0;
  CHECK(cordma_receive(both.here, &text, 1, nullptr, long_us) == CORDMA_DISCONNECTED);
  CHECK(cordma_disconnect(both.there, long_us) == CORDMA_BAD_HANDLE);
}
