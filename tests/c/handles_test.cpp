#include "c/c_pair.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma::test;

namespace {

/// Handles of each kind, for calls that should refuse one of them.
struct all_handles {
  cordma_context context;
  cordma_listener listener;
  cordma_connection connection;
  cordma_memory memory;
  cordma_remote remote;
};

using call = std::function<int(const all_handles&)>;

void ignore_client(cordma_listener, cordma_connection, int, void*) {}
void ignore_connected(cordma_connection, int, void*) {}
void ignore_message(cordma_connection, const void*, const cordma_message*, void*) {}

char text[64];  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
cordma_listener a_listener;
cordma_connection a_connection;
cordma_memory a_memory;
cordma_remote a_remote;
void* an_address;
int a_descriptor;

const cordma_work a_write_of(const all_handles& h) {
  cordma_work work{};
  work.kind = CORDMA_WRITE;
  work.memory = h.memory;
  work.bytes = 8;
  work.remote = h.remote;
  return work;
}

/// Each function, with the handle that comes first in it.
const std::vector<call> by_context{
    [](const auto& h) { return cordma_listen(h.context, nullptr, &a_listener); },
    [](const auto& h) { return cordma_connect(h.context, "127.0.0.1:1", 1000, &a_connection); },
    [](const auto& h) { return cordma_allocate(h.context, 8, 0, &a_memory, &an_address); },
    [](const auto& h) { return cordma_register(h.context, text, 8, 0, &a_memory); },
    [](const auto& h) {
      return cordma_start_connect(h.context, "127.0.0.1:1", 1, &ignore_connected, nullptr);
    },
    [](const auto& h) { return cordma_descriptor(h.context, &a_descriptor); },
    [](const auto& h) { return cordma_dispatch(h.context); },
    [](const auto& h) { return cordma_release(h.context, long_us); }};
const std::vector<call> by_listener{
    [](const auto& h) { return cordma_address(h.listener, text, sizeof text); },
    [](const auto& h) { return cordma_accept(h.listener, 1, &a_connection); },
    [](const auto& h) { return cordma_set_accept_callback(h.listener, &ignore_client, nullptr); },
    [](const auto& h) { return cordma_start(h.listener); },
    [](const auto& h) { return cordma_stop(h.listener); },
    [](const auto& h) { return cordma_close(h.listener); }};
const std::vector<call> by_connection{
    [](const auto& h) { return cordma_send(h.connection, h.memory, 0, 8, 1000); },
    [](const auto& h) { return cordma_send_immediate(h.connection, h.memory, 0, 8, 1, 1000); },
    [](const auto& h) { return cordma_receive(h.connection, text, sizeof text, nullptr, 1); },
    [](const auto& h) { return cordma_write(h.connection, h.memory, 0, 8, h.remote, 0, 1000); },
    [](const auto& h) {
      return cordma_write_immediate(h.connection, h.memory, 0, 8, h.remote, 0, 1, 1000);
    },
    [](const auto& h) { return cordma_read(h.connection, h.memory, 0, 8, h.remote, 0, 1000); },
    [](const auto& h) {
      return cordma_compare_swap(h.connection, h.remote, 0, 0, 0, nullptr, 1000);
    },
    [](const auto& h) { return cordma_fetch_add(h.connection, h.remote, 0, 0, nullptr, 1000); },
    [](const auto& h) { return cordma_import(h.connection, text, &a_remote); },
    [](const auto& h) { return cordma_request(h.connection, 8, 1000, 1000, &a_remote); },
    [](const auto& h) {
      return cordma_set_receive_callback(h.connection, &ignore_message, nullptr, nullptr);
    },
    [](const auto& h) {
      const cordma_work work = a_write_of(h);
      return cordma_post(h.connection, &work, 1000, nullptr, nullptr);
    },
    [](const auto& h) { return cordma_broadcast(&h.connection, 1, h.memory, 0, 8, 1000); },
    [](const auto& h) { return cordma_disconnect(h.connection, long_us); }};
const std::vector<call> by_memory{
    [](const auto& h) { return cordma_export(h.memory, text); },
    [](const auto& h) { return cordma_broadcast(nullptr, 0, h.memory, 0, 8, 1000); },
    [](const auto& h) { return cordma_send(h.connection, h.memory, 0, 8, 1000); },
    [](const auto& h) { return cordma_free(h.memory); }};
const std::vector<call> by_remote{
    [](const auto& h) {
      std::uint64_t bytes = 0;
      return cordma_remote_bytes(h.remote, &bytes);
    },
    [](const auto& h) { return cordma_fetch_add(h.connection, h.remote, 0, 0, nullptr, 1000); },
    [](const auto& h) { return cordma_return(h.remote); }};

/// A context of this thread with one object of each kind; the other end has a thread of its own.
struct each_kind {
  c_pair both;
  c_memory mine{both.client, 64};
  c_memory theirs{both.server.context, 64, CORDMA_REMOTE_WRITE};
  all_handles all{both.client, nullptr, both.here, mine, both.named(theirs)};
  each_kind() { CHECK_OK(cordma_listen(both.client, nullptr, &all.listener)); }
};

void check_all(const std::vector<call>& calls, const all_handles& with, int wanted,
               const char* says) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    INFO("call " << i);
    const int status = calls[i](with);
    INFO(cordma_error_text());
    CHECK(status == wanted);
    CHECK(cordma_error_code() == wanted);
    CHECK_THAT(cordma_error_text(), Catch::Contains(says));
  }
}

}  // namespace

TEST_CASE("no call takes a null handle", "[c][device]") {
  const each_kind some;
  all_handles bad = some.all;
  bad.context = nullptr;
  check_all(by_context, bad, CORDMA_BAD_HANDLE, "null");
  bad = some.all;
  bad.listener = nullptr;
  check_all(by_listener, bad, CORDMA_BAD_HANDLE, "null");
  bad = some.all;
  bad.connection = nullptr;
  const std::vector<call> of_one{by_connection.begin(), by_connection.end() - 2};
  check_all(of_one, bad, CORDMA_BAD_HANDLE, "null");
  bad = some.all;
  bad.memory = nullptr;
  check_all(by_memory, bad, CORDMA_BAD_HANDLE, "null");
  bad = some.all;
  bad.remote = nullptr;
  check_all(by_remote, bad, CORDMA_BAD_HANDLE, "null");
}

TEST_CASE("no call takes a handle of another kind, or a number of nothing", "[c][device]") {
  const each_kind some;
  const auto as = [](auto made, auto* of) { return reinterpret_cast<decltype(made)>(of); };
  all_handles bad{as(some.all.context, some.all.memory), as(some.all.listener, some.all.context),
                  as(some.all.connection, some.all.remote),
                  as(some.all.memory, some.all.connection), as(some.all.remote, some.all.listener)};
  check_all(by_context, bad, CORDMA_BAD_HANDLE, "of another kind");
  check_all(by_listener, bad, CORDMA_BAD_HANDLE, "of another kind");
  check_all(by_connection, bad, CORDMA_BAD_HANDLE, "of another kind");
  check_all(by_memory, bad, CORDMA_BAD_HANDLE, "of another kind");
  check_all(by_remote, bad, CORDMA_BAD_HANDLE, "of another kind");
  for (const std::uintptr_t number :
       {std::uintptr_t{1}, ~std::uintptr_t{0}, std::uintptr_t{0x7fff1234}})
    CHECK(cordma_free(reinterpret_cast<cordma_memory>(number)) == CORDMA_BAD_HANDLE);
}

TEST_CASE("a handle that was closed stays closed, also when others are made", "[c][device]") {
  each_kind some;
  CHECK_OK(cordma_free(some.all.memory));
  CHECK_OK(cordma_return(some.all.remote));
  CHECK_OK(cordma_disconnect(some.all.connection, long_us));
  CHECK_OK(cordma_close(some.all.listener));
  // Other objects take the slots.
  const c_memory again{some.both.client, 64}, and_again{some.both.client, 64};
  cordma_listener other = nullptr;
  CHECK_OK(cordma_listen(some.both.client, nullptr, &other));
  check_all(by_listener, some.all, CORDMA_BAD_HANDLE, "closed");
  check_all(by_connection, some.all, CORDMA_BAD_HANDLE, "closed");
  check_all(by_memory, some.all, CORDMA_BAD_HANDLE, "closed");
  check_all(by_remote, some.all, CORDMA_BAD_HANDLE, "closed");
  CHECK_OK(some.both.client.release());
  check_all(by_context, some.all, CORDMA_BAD_HANDLE, "closed");
  CHECK(cordma_free(again) == CORDMA_BAD_HANDLE);
  CHECK(cordma_close(other) == CORDMA_BAD_HANDLE);
}

TEST_CASE("no other thread uses the handles of a thread's context", "[c][device]") {
  const each_kind some;
  std::thread{[&] {
    for (const auto* calls : {&by_context, &by_listener, &by_connection}) {
      // A set of peers belongs to its memory's context.
      check_all(*calls, some.all, CORDMA_WRONG_THREAD, "thread");
    }
    const std::vector<call> own{by_memory.front(), by_memory.back()};
    check_all(own, some.all, CORDMA_WRONG_THREAD, "thread");
    const std::vector<call> of_peer{by_remote.front(), by_remote.back()};
    check_all(of_peer, some.all, CORDMA_WRONG_THREAD, "thread");
  }}.join();
  CHECK_OK(cordma_send(some.all.connection, some.all.memory, 0, 8, long_us));
}

TEST_CASE("handles of two contexts do not go together", "[c][device]") {
  const each_kind some;
  const c_context other{CORDMA_CALLS};
  const c_memory foreign{other, 64};
  CHECK(cordma_send(some.all.connection, foreign, 0, 8, long_us) == CORDMA_BAD_ARGUMENT);
  CHECK_THAT(cordma_error_text(), Catch::Contains("two contexts"));
  // The server's memory belongs to its thread.
  CHECK(cordma_send(some.all.connection, some.theirs, 0, 8, long_us) == CORDMA_WRONG_THREAD);
}

TEST_CASE("the child of a fork owns none of its parent's handles", "[c][device]") {
  const each_kind some;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool is_refused =
        cordma_send(some.all.connection, some.all.memory, 0, 8, long_us) == CORDMA_WRONG_THREAD &&
        cordma_release(some.all.context, long_us) == CORDMA_WRONG_THREAD &&
        cordma_free(some.theirs) == CORDMA_BAD_HANDLE &&
        cordma_release(some.both.server.context, long_us) == CORDMA_BAD_HANDLE;
    ::_exit(is_refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_OK(cordma_send(some.all.connection, some.all.memory, 0, 8, long_us));
}

TEST_CASE("each status has a text that stays", "[c]") {
  CHECK(std::string(cordma_status_text(CORDMA_OK)) == "success");
  CHECK(std::string(cordma_status_text(CORDMA_TIMED_OUT)) == "deadline passed");
  CHECK(std::string(cordma_status_text(CORDMA_ERRNO + ECONNREFUSED)) == "Connection refused");
  CHECK_THAT(cordma_status_text(CORDMA_WC + 10), Catch::Contains("access"));
  CHECK(cordma_status_text(CORDMA_REFUSED) == cordma_status_text(CORDMA_REFUSED));
  for (const int unknown : {-1, 50, 99, 999'999}) CHECK(*cordma_status_text(unknown) != '\0');
}
