#include "examples.hpp"

#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

/// While it lives, what is printed to stdout goes nowhere.
class silence {
 public:
  silence() : before_{::dup(STDOUT_FILENO)}, nowhere_{::open("/dev/null", O_WRONLY | O_CLOEXEC)} {
    std::fflush(stdout);
    ::dup2(nowhere_.get(), STDOUT_FILENO);
  }
  silence(const silence&) = delete;
  ~silence() {
    std::fflush(stdout);
    ::dup2(before_.get(), STDOUT_FILENO);
  }

 private:
  unique_fd before_, nowhere_;
};

/// A server and its clients, which are told its address once it listens.
struct serving_example : cast {
  using cast::cast;
  bool is_listening = false;

  template <class Serve>
  task<> listen_and(runtime& rt, Serve serve) {
    listener listening = rt.listen(at(0));
    is_listening = true;
    co_await serve(listening);
  }
  task<> wait_for_server() {
    return until([this] { return is_listening; }, 1ms);
  }
};

struct echoing : serving_example {
  using serving_example::serving_example;
  task<> live(runtime& rt, unsigned self) {
    if (self == 0) {
      co_await listen_and(rt, [](listener& l) { return echo_server(l); });
    } else {
      co_await wait_for_server();
      co_await echo_client(rt, at(0), 200, unsigned(1 + w.random(59)));
    }
  }
};

struct keeping_values : serving_example {
  using serving_example::serving_example;
  task<> live(runtime& rt, unsigned self) {
    if (self == 0) {
      co_await listen_and(rt, [&rt](listener& l) { return key_value_server(rt, l); });
    } else {
      co_await wait_for_server();
      co_await key_value_client(rt, at(0));
    }
  }
};

struct going_round : cast {
  using cast::cast;
  task<> live(runtime& rt, unsigned self) {
    std::vector<endpoint> members;
    for (unsigned r = 0; r < size(); ++r) members.push_back(at(r));
    return ring_rank(rt, meeting::by_list(std::move(members), self));
  }
};

}  // namespace

void play_echo_example(sim::world& w) {
  const silence quiet;
  start_all<echoing>(w, 2);
  w.run(10min);
}

void play_key_value_example(sim::world& w) {
  const silence quiet;
  start_all<keeping_values>(w, 3);
  w.run(1min);
}

void play_ring_example(sim::world& w) {
  const silence quiet;
  start_all<going_round>(w, 2 + unsigned(w.random(4)));
  w.run(10min);
}

}  // namespace cordma::test
