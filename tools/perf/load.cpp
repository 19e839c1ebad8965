#include "load.hpp"

#include <cordma/coro/scope.hpp>

#include <algorithm>
#include <stdexcept>

namespace perf {

/// The part of one thread, and what it leaves behind.
struct load::seat {
  unsigned index = 0;
  cordma::event go{};
  driver_list drivers{};
  meter warming{}, measuring{};
  counters cost{};
};

namespace {

cordma::runtime_group_options group_options(const job& what, const std::string& device) {
  return {.each =
              [&what, &device](unsigned) {
                return cordma::runtime_options{.device = device, .cq = {.mode = what.mode}};
              },
          .threads = what.threads};
}

const remote_end& remote_end_of(const std::vector<remote_end>& remote_ends, const link& l) {
  const auto found = std::ranges::find(remote_ends, l.qpn(), &remote_end::qpn);
  if (found == remote_ends.end()) {
    throw std::runtime_error{"the server does not know queue pair " + std::to_string(l.qpn()) +
                             ": is there an address translation between us?"};
  }
  return *found;
}

}  // namespace

load::load(cordma::executor& executor, const job& what, const std::string& device,
           cordma::endpoint server)
    : executor_{executor},
      what_{what},
      server_{std::move(server)},
      threads_{group_options(what, device)} {
  for (unsigned i = 0; i < what.threads; ++i) {
    seats_.push_back(std::make_unique<seat>());
    seats_.back()->index = i;
  }
  runner_ = std::jthread{[this] {
    try {
      threads_.run([this](cordma::runtime& rt, unsigned index) { return live(rt, index); });
    } catch (...) {
      why_ = std::current_exception();
    }
    executor_.post([this]() noexcept {
      ended_.set();
      connected_.set();
    });
  }};
}

load::~load() = default;

void load::check() const {
  if (why_ != nullptr) std::rethrow_exception(why_);
}

std::uint32_t load::connections_of(unsigned index) const noexcept {
  return what_.connections / what_.threads + (index < what_.connections % what_.threads ? 1 : 0);
}

std::uint64_t load::share_of(std::uint64_t operations, unsigned index) const noexcept {
  return operations / what_.threads + (index < operations % what_.threads ? 1 : 0);
}

void load::go(std::vector<remote_end> remote_ends) {
  remote_ends_ = std::move(remote_ends);
  for (const auto& s : seats_) {
    threads_[s->index].executor().post([&go = s->go]() noexcept { go.set(); });
  }
}

void load::one_connected() {
  if (++connected_count_ == what_.threads) connected_.set();
}

cordma::task<> load::live(cordma::runtime& rt, unsigned index) {
  seat& here = *seats_[index];
  std::vector<std::unique_ptr<link>> links;  // Links end on this thread, whatever happens.
  for (std::uint32_t i = 0; i < connections_of(index); ++i) {
    std::unique_ptr<link> made = co_await link::connect(rt, what_, server_);
    here.drivers.add(made->driver());
    links.push_back(std::move(made));
  }
  executor_.post([this]() noexcept { one_connected(); });
  co_await here.go.wait();
  for (const auto& l : links) l->learn(remote_end_of(remote_ends_, *l));
  co_await measure(rt, here, links);
  for (const auto& l : links) co_await l->close();
}

cordma::task<> load::measure(cordma::runtime& rt, seat& here,
                             const std::vector<std::unique_ptr<link>>& links) {
  const auto run_all = [&links](meter& m) {
    return cordma::with_scope([&links, &m](cordma::scope& all) -> cordma::task<> {
      for (const auto& l : links) all.spawn(l->run(m));
      co_return;
    });
  };
  const std::uint64_t mine =
      what_.operations != 0 ? share_of(what_.operations, here.index) : meter::unlimited;
  const std::chrono::nanoseconds longest =
      what_.operations != 0 ? std::chrono::nanoseconds::max() : what_.duration;
  here.warming.begin(std::min(warm_up_operations, mine),
                     std::min<std::chrono::nanoseconds>(warm_up_time, longest));
  co_await run_all(here.warming);

  const counters before = read_counters(rt, here.drivers);
  here.measuring.begin(mine, longest);
  co_await run_all(here.measuring);
  here.cost = read_counters(rt, here.drivers) - before;
}

measured load::result() const {
  measured all;
  auto began = clock::time_point::max();
  auto ended = clock::time_point::min();
  for (const auto& s : seats_) {
    all.latencies.add(s->measuring.latencies());
    all.cost += s->cost;
    all.warm_up_operations += s->warming.done();
    began = std::min(began, s->measuring.began());
    ended = std::max(ended, s->measuring.now());
  }
  all.seconds = std::chrono::duration<double>(ended - began).count();
  return all;
}

std::uint64_t load::done() const noexcept {
  std::uint64_t all = 0;
  for (const auto& s : seats_) all += s->measuring.done();
  return all;
}

}  // namespace perf
