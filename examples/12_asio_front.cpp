// A TCP server made with asio, which asks a store behind it by calls over RDMA. One thread runs
// both: cordma's executor waits in asio's io_context. A second thread is the store. A client of
// asio's, in the first thread, sends words by TCP, a line each, and prints the answers:
//
//     12_asio_front [DEVICE [WORD...]]

#include <cordma/asio.hpp>
#include <cordma/cordma.hpp>

#include <asio/awaitable.hpp>
#include <asio/buffer.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read_until.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace {

using asio::use_awaitable;
using asio::ip::tcp;

/// A call of the store: how often this word has come.
struct count : cordma::rpc::method<"example.count", std::string, std::uint64_t> {};

constexpr std::size_t line_bytes_max = 256;

/// The store: it answers calls of every connection.
class store {
 public:
  explicit store(const char* device)
      : group_{{.each = [device](unsigned) { return cordma::runtime_options{.device = device}; },
                .threads = 1}} {
    calls_.handle<count>(
        [this](std::string word) -> cordma::task<std::uint64_t> { co_return ++words_[word]; });
  }
  cordma::endpoint listen() {
    const auto serve = [this](cordma::runtime&, unsigned, cordma::connection conn) {
      return calls_.serve(std::move(conn));
    };
    return group_.serve({"127.0.0.1", 0}, serve).local_endpoint();
  }

 private:
  std::map<std::string, std::uint64_t> words_;
  cordma::rpc::server calls_;
  cordma::runtime_group group_;
};

/// Serves one TCP client until it goes.
asio::awaitable<void> serve(tcp::socket client, asio::io_context& context,
                            cordma::rpc::client& behind) {
  std::string text;
  for (;;) {
    const std::size_t length = co_await asio::async_read_until(
        client, asio::dynamic_buffer(text, line_bytes_max), '\n', use_awaitable);
    const std::string word = text.substr(0, length - 1);
    text.erase(0, length);
    const std::uint64_t n =
        co_await cordma::async_await(context, behind.call<count>(word), use_awaitable);
    const std::string answer = word + " " + std::to_string(n) + "\n";
    co_await asio::async_write(client, asio::buffer(answer), use_awaitable);
  }
}

asio::awaitable<void> accept_all(tcp::acceptor& front, asio::io_context& context,
                                 cordma::rpc::client& behind) {
  for (;;) {
    tcp::socket client = co_await front.async_accept(use_awaitable);
    // A client that goes ends its own coroutine, and no other.
    asio::co_spawn(context, serve(std::move(client), context, behind), asio::detached);
  }
}

asio::awaitable<void> ask(tcp::endpoint front, std::vector<std::string> words) {
  tcp::socket server{co_await asio::this_coro::executor};
  co_await server.async_connect(front, use_awaitable);
  std::string answers;
  for (const std::string& word : words) {
    co_await asio::async_write(server, asio::buffer(word + "\n"), use_awaitable);
    const std::size_t length = co_await asio::async_read_until(
        server, asio::dynamic_buffer(answers, line_bytes_max), '\n', use_awaitable);
    std::printf("%.*s", int(length), answers.c_str());
    answers.erase(0, length);
  }
}

void run(const char* device, std::vector<std::string> words) {
  store behind{device};
  asio::io_context context{1};
  cordma::runtime_options options{.device = device};
  options.executor.reactor = std::make_unique<cordma::asio_reactor>(context);
  cordma::runtime rt{std::move(options)};
  cordma::rpc::client client{rt.run(rt.connect(behind.listen()))};

  tcp::acceptor front{context, {asio::ip::address_v4::loopback(), 0}};
  asio::co_spawn(context, accept_all(front, context, client), asio::detached);
  cordma::event over{rt.executor()};
  std::exception_ptr why;
  asio::co_spawn(context, ask(front.local_endpoint(), std::move(words)),
                 [&](std::exception_ptr thrown) {
                   why = std::move(thrown);
                   over.set();
                 });
  rt.run(over.wait());  // In place of context.run(): this thread does both.
  if (why) std::rethrow_exception(why);
  rt.run(client.close());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  if (words.empty()) words = {"apple", "pear", "apple"};
  try {
    run(argc > 1 ? argv[1] : "", std::move(words));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "12_asio_front: %s\n", e.what());
    return 1;
  }
}
