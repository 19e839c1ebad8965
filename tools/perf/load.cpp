#include "load.hpp"

#include "cpu_list.hpp"
#include "meter_limits.hpp"

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
  std::atomic<bool> is_measuring{false};
  counters cost{};
};

namespace {

cordma::runtime_group_options group_options(const job& what, const client_options& options) {
  return {.each = [&what, &options](unsigned) { return options.device.runtime_options(what.mode); },
          .threads = what.threads,
          .pin = cpus_for(options.pin, 0, what.threads)};
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

load::load(cordma::executor& executor, const job& what, const client_options& options,
           cordma::endpoint server)
    : executor_{executor},
      what_{what},
      server_{std::move(server)},
      is_stopped_{options.is_stopped},
      threads_{group_options(what, options)} {
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
  for (const auto& l : links) co_await l->begin_reverse();
  co_await measure(rt, here, links);
  for (const auto& l : links) co_await l->end_reverse();
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
  const meter::limits until = limits_of(what_, here.index, what_.threads, is_stopped_);
  here.warming.begin(warm_up_of(what_, until));
  co_await run_all(here.warming);

  const counters before = read_counters(rt, here.drivers);
  here.measuring.begin(until);
  here.is_measuring.store(true, std::memory_order_relaxed);
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
    all.lateness.add(s->measuring.lateness());
    all.missed += s->measuring.missed();
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

bool load::is_measuring() const noexcept {
  return std::ranges::all_of(
      seats_, [](const auto& s) { return s->is_measuring.load(std::memory_order_relaxed); });
}

histogram load::snapshot() const {
  histogram all;
  for (const auto& s : seats_) all.add(s->measuring.latencies().snapshot());
  return all;
}

}  // namespace perf
