// A hook that says who connected, was refused or got memory: as lines for journald, and as counts.
// One process is the server and its clients. Usage: 16_logging [DEVICE]

#include <cordma/base/event_log.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>

#include <array>
#include <cstdio>
#include <map>
#include <stdexcept>

namespace {

/// Outlives the runtime that tells it.
class journal {
 public:
  void operator()(const cordma::event_log::record& record) {
    ++counts_[record.kind];
    // journald reads the priority from the beginning of a line (sd-daemon(3)).
    constexpr std::array priorities{3, 4, 6, 7};
    std::array<char, 1024> line;
    const int size = int(record.write_to(line));
    std::printf("<%d>%.*s\n", priorities.at(std::size_t(record.level)), size, line.data());
  }
  void print_counts() const {
    for (const auto& [event, count] : counts_) std::printf("%s: %u\n", to_string(event), count);
  }

 private:
  std::map<cordma::event_log::kind, unsigned> counts_;
};

/// Admits clients that say 1.
void admit(cordma::connection_request& request) {
  if (request.private_data[0] != std::byte{1}) request.refuse("wrong word");
}

cordma::task<> borrow(cordma::connection& client) {
  cordma::remote_mr memory = co_await client.request_remote_mr(4096);
  // Is returned here.
}

}  // namespace

int main(int argc, char** argv) try {
  journal events;
  cordma::runtime_options options;
  if (argc > 1) options.device = argv[1];
  options.log = {.hook = [&](const cordma::event_log::record& record) { events(record); },
                 .least_urgent = cordma::event_log::level::debug};
  options.connections.agent.lending.bytes_max = 4096;
  cordma::runtime rt{std::move(options)};
  {
    cordma::listener listener = rt.listen({}, {.admit = admit});
    const cordma::endpoint server = listener.local_endpoint();
    cordma::connection_changes word;
    word.private_data.emplace()[0] = std::byte{1};
    auto [client, accepted] = rt.run(when_all(rt.connect(server, word), listener.accept()));
    rt.run(borrow(client));
    const auto refused = rt.run(as_result(rt.connect(server)));
    if (!refused.has_failure()) throw std::runtime_error{"a stranger was let in"};
    rt.run(client.close());
  }
  rt.run(cordma::current_environment());  // Until all that was dropped is closed.
  events.print_counts();
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
