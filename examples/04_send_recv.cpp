// Two ends of a connection exchange messages. Both run in this one process, on one executor; two
// processes do the same (see demo.cpp). Usage: 04_send_recv [DEVICE]

#include <cordma/cordma.hpp>

#include <cstdio>
#include <cstring>
#include <string_view>

namespace {

std::string_view text_of(const cordma::message& m) {
  const auto bytes = m.payload().bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Copies text into registered memory and gives the part it fills.
cordma::local_mr_slice put(cordma::local_mr& into, std::string_view text) {
  std::memcpy(into.bytes().data(), text.data(), text.size());
  return into.slice(0, text.size());
}

cordma::task<> serve(cordma::runtime& rt, cordma::listener& listener) {
  cordma::connection conn = co_await listener.accept();
  cordma::local_mr buffer = rt.memory().allocate_zeroed(4096);

  // Receiving is two steps: give a buffer to the queue, then take the next message that came.
  conn.post_recv(buffer.slice(0, 2048));
  conn.post_recv(buffer.slice(2048, 2048));
  for (int i = 0; i < 2; ++i) {
    const cordma::message m = co_await conn.next_message();
    std::printf("server got '%s'", std::string{text_of(m)}.c_str());
    if (m.immediate) std::printf(" with immediate %u", *m.immediate);
    std::printf("\n");
  }
  co_await conn.send(put(buffer, "goodbye"));
  co_await conn.close();
}

cordma::task<> ask(cordma::runtime& rt, cordma::endpoint server) {
  cordma::connection conn = co_await rt.connect(server);
  cordma::local_mr out = rt.memory().allocate_zeroed(4096);
  cordma::local_mr in = rt.memory().allocate_zeroed(4096);

  co_await conn.send(put(out, "hello"));
  co_await conn.send_with_imm(put(out, "hello again"), 42);
  // One call posts the receive and awaits the message.
  const cordma::message answer = co_await conn.recv(in);
  std::printf("client got '%s'\n", std::string{text_of(answer)}.c_str());
  co_await conn.close();
}

}  // namespace

int main(int argc, char** argv) try {
  cordma::runtime rt{{.device = argc > 1 ? argv[1] : ""}};
  cordma::listener listener = rt.listen();
  rt.run(cordma::when_all(serve(rt, listener), ask(rt, listener.local_endpoint())));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
