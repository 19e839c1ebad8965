#pragma once

#include "support/device.hpp"

#include <cordma.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace cordma::test {

/// Long enough for any device; a test that waits so long fails.
inline constexpr std::int64_t long_us = 60'000'000;

/// Options for the device under test, whose name stays.
inline cordma_options on_device(int loop = CORDMA_CALLS, int progress = CORDMA_EVENT) {
  static const std::string name = device_name();
  cordma_options options = CORDMA_OPTIONS;
  options.device = name.c_str();
  options.loop = loop;
  options.progress = progress;
  return options;
}

/// Fails with the library's text.
#define CHECK_OK(call)                    \
  do {                                    \
    const int status_of_call = (call);    \
    INFO(cordma_error_text());            \
    REQUIRE(status_of_call == CORDMA_OK); \
  } while (false)

/// A context that is released at the end.
class c_context {
 public:
  explicit c_context(const cordma_options& options = on_device()) {
    CHECK_OK(cordma_init(&options, &own_));
  }
  explicit c_context(int loop) : c_context{on_device(loop)} {}
  c_context(const c_context&) = delete;
  c_context& operator=(const c_context&) = delete;
  ~c_context() {
    if (own_ != nullptr) cordma_release(own_, long_us);
  }
  operator cordma_context() const noexcept { return own_; }
  int release() { return cordma_release(std::exchange(own_, nullptr), long_us); }

 private:
  cordma_context own_ = nullptr;
};

/// Registered memory.
struct c_memory {
  c_memory(cordma_context in, std::size_t bytes, unsigned access = CORDMA_LOCAL) {
    void* at = nullptr;
    CHECK_OK(cordma_allocate(in, bytes, access, &own, &at));
    text = static_cast<char*>(at);
  }
  void put(std::string_view what) const { what.copy(text, what.size()); }
  [[nodiscard]] std::array<unsigned char, CORDMA_NAME_BYTES> name() const {
    std::array<unsigned char, CORDMA_NAME_BYTES> bytes{};
    CHECK_OK(cordma_export(own, bytes.data()));
    return bytes;
  }
  operator cordma_memory() const noexcept { return own; }
  cordma_memory own = nullptr;
  char* text = nullptr;
};

/// A server with a thread of its own, which keeps the clients that come.
class c_server {
 public:
  explicit c_server(const cordma_options& options = on_device(CORDMA_THREAD)) : context{options} {
    CHECK_OK(cordma_listen(context, nullptr, &listener));
    std::array<char, 64> text{};
    CHECK_OK(cordma_address(listener, text.data(), text.size()));
    address = text.data();
  }
  /// Waits for the next client. \thread any.
  [[nodiscard]] cordma_connection accept() const {
    cordma_connection made = nullptr;
    CHECK_OK(cordma_accept(listener, long_us, &made));
    return made;
  }

  c_context context;
  cordma_listener listener = nullptr;
  std::string address;
};

/// A client on this thread, and a server that a thread of its own runs.
struct c_pair {
  explicit c_pair(const cordma_options& of_client = on_device(),
                  const cordma_options& of_server = on_device(CORDMA_THREAD))
      : server{of_server}, client{of_client} {
    CHECK_OK(cordma_connect(client, server.address.c_str(), long_us, &here));
    there = server.accept();
  }
  /// Names memory of the server for the client.
  [[nodiscard]] cordma_remote named(const c_memory& memory) const {
    cordma_remote made = nullptr;
    CHECK_OK(cordma_import(here, memory.name().data(), &made));
    return made;
  }
  [[nodiscard]] std::string received_there(std::int64_t timeout_us = long_us) const {
    std::array<char, 128> text{};
    cordma_message about{};
    CHECK_OK(cordma_receive(there, text.data(), text.size(), &about, timeout_us));
    return {text.data(), about.bytes};
  }

  c_server server;
  c_context client;
  cordma_connection here = nullptr;
  cordma_connection there = nullptr;
};

}  // namespace cordma::test
