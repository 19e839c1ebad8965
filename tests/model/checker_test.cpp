#include "arena.hpp"
#include "model.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

// The checker itself: what C++20 allows of a few accesses, and what it forbids.

namespace {

using model::atomic;
using model::data;
using model::explore;
using model::limits;
using order = std::memory_order;
using results = std::set<std::pair<int, int>>;

/// Results of all runs of one exploration.
results seen;

void note(int first, int second) {
  const model::arena::outside of_all_runs;
  seen.emplace(first, second);
}

limits of_threads(unsigned threads) { return {.threads = threads}; }

/// Each thread stores to one word and reads the other's.
template <order Store, order Load, bool HasFence>
struct store_buffering : model::scenario {
  atomic<int> words[2]{0, 0};
  int read[2]{};
  void run(unsigned thread) override {
    words[thread].store(1, Store);
    if (HasFence) model::atomic_thread_fence(order::seq_cst);
    read[thread] = words[1 - thread].load(Load);
  }
  void end() override { note(read[0], read[1]); }
};

/// One thread writes and says so, the other one reads what it was told of.
template <order Store, order Load>
struct message : model::scenario {
  data<int> bytes;
  atomic<int> told{0};
  message() { model::name(*this, "message", {"bytes", "told"}); }
  void run(unsigned thread) override {
    if (thread == 0) {
      bytes = 7;
      told.store(1, Store);
    } else if (told.load(Load) == 1) {
      model::check(bytes == 7, "the message is another one");
    }
  }
};

template <class Scenario>
std::string finding_of(const limits& how) {
  return explore<Scenario>(how).finding;
}

template <class Scenario>
results results_of(const limits& how) {
  seen.clear();
  CHECK(finding_of<Scenario>(how).empty());
  return std::exchange(seen, {});
}

}  // namespace

TEST_CASE("a store may pass a load of another word, unless both are sequentially consistent",
          "[model]") {
  const results in_order{{0, 1}, {1, 0}, {1, 1}};
  results passed = in_order;
  passed.emplace(0, 0);
  const limits two = of_threads(2);
  CHECK(results_of<store_buffering<order::seq_cst, order::seq_cst, false>>(two) == in_order);
  CHECK(results_of<store_buffering<order::relaxed, order::relaxed, true>>(two) == in_order);
  CHECK(results_of<store_buffering<order::release, order::acquire, false>>(two) == passed);
  CHECK(results_of<store_buffering<order::seq_cst, order::acquire, false>>(two) == passed);
  CHECK(results_of<store_buffering<order::release, order::seq_cst, false>>(two) == passed);
}

TEST_CASE("skipping redundant orders changes no result", "[model]") {
  using relaxed = store_buffering<order::relaxed, order::relaxed, false>;
  limits every = of_threads(2);
  const auto reduced = explore<relaxed>(every);
  const results fewer = std::exchange(seen, {});
  every.preemptions = model::unlimited - 1;
  const auto all = explore<relaxed>(every);
  CHECK(std::exchange(seen, {}) == fewer);
  CHECK(reduced.runs < all.runs);
}

TEST_CASE("a message needs a release and an acquire", "[model]") {
  const limits two = of_threads(2);
  CHECK(finding_of<message<order::release, order::acquire>>(two).empty());
  CHECK(finding_of<message<order::seq_cst, order::seq_cst>>(two).empty());
  for (const std::string& found : {finding_of<message<order::relaxed, order::acquire>>(two),
                                   finding_of<message<order::release, order::relaxed>>(two)}) {
    CHECK(found.find("message.bytes") != std::string::npos);
    CHECK(found.find("thread 0  store    message.told = 1") != std::string::npos);
  }
}

TEST_CASE("a finding's choices repeat it", "[model]") {
  const std::string found = finding_of<message<order::relaxed, order::acquire>>(of_threads(2));
  const std::string start = "CORDMA_MODEL_CHOICES=\"";
  const std::size_t begin = found.find(start) + start.size();
  REQUIRE(begin > start.size());
  const std::string choices = found.substr(begin, found.find('"', begin) - begin);
  ::setenv("CORDMA_MODEL_CHOICES", choices.c_str(), 1);
  const auto again = explore<message<order::relaxed, order::acquire>>(of_threads(2));
  ::unsetenv("CORDMA_MODEL_CHOICES");
  CHECK(again.finding == found);
  CHECK(again.runs == 1);
}

namespace {

/// One thread writes one word, another one a second word, and two threads read both.
template <order Load>
struct independent_writes : model::scenario {
  atomic<int> words[2]{0, 0};
  int read[2][2]{};
  void run(unsigned thread) override {
    if (thread < 2) return words[thread].store(1, order::seq_cst);
    int(&mine)[2] = read[thread - 2];
    for (unsigned n = 0; n < 2; ++n) mine[n] = words[(thread + n) % 2].load(Load);
  }
  void end() override { note(read[0][0] * 10 + read[0][1], read[1][0] * 10 + read[1][1]); }
};

/// Two loads of one word, while another thread stores twice.
struct coherent : model::scenario {
  atomic<int> number{0};
  void run(unsigned thread) override {
    if (thread == 0) {
      number.store(1, order::relaxed);
      number.store(2, order::relaxed);
    } else {
      const int first = number.load(order::relaxed);
      note(first, number.load(order::relaxed));
    }
  }
};

/// A release goes on through another thread's change, and ends with another thread's store.
template <bool IsChange>
struct release_sequence : model::scenario {
  data<int> bytes;
  atomic<int> told{0};
  void run(unsigned thread) override {
    if (thread == 0) {
      bytes = 7;
      told.store(1, order::release);
    } else if (thread == 1) {
      int expected = 1;
      if (IsChange)
        told.compare_exchange_strong(expected, 2, order::relaxed);
      else if (told.load(order::relaxed) == 1)
        told.store(2, order::relaxed);
    } else if (told.load(order::acquire) == 2) {
      model::check(bytes == 7, "the message is another one");
    }
  }
};

struct fenced_message : model::scenario {
  data<int> bytes;
  atomic<int> told{0};
  void run(unsigned thread) override {
    if (thread == 0) {
      bytes = 7;
      model::atomic_thread_fence(order::release);
      told.store(1, order::relaxed);
    } else if (told.load(order::relaxed) == 1) {
      model::atomic_thread_fence(order::acquire);
      model::check(bytes == 7, "the message is another one");
    }
  }
};

template <unsigned Threads>
struct counting : model::scenario {
  atomic<unsigned> count{0};
  void run(unsigned /*thread*/) override { count.fetch_add(1, order::relaxed); }
  void end() override { model::check(count.load() == Threads, "an addition is lost"); }
};

}  // namespace

TEST_CASE("two readers may see two writes in different orders, unless all is in one order",
          "[model]") {
  const limits four = of_threads(4);
  CHECK(results_of<independent_writes<order::acquire>>(four).contains({10, 10}));
  CHECK_FALSE(results_of<independent_writes<order::seq_cst>>(four).contains({10, 10}));
}

TEST_CASE("a thread never reads an older store of a word than before", "[model]") {
  CHECK(results_of<coherent>(of_threads(2)) ==
        results{{0, 0}, {0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 2}});
}

TEST_CASE("a release goes on through changes, and not through stores", "[model]") {
  CHECK(finding_of<release_sequence<true>>(of_threads(3)).empty());
  CHECK_FALSE(finding_of<release_sequence<false>>(of_threads(3)).empty());
}

TEST_CASE("fences order what relaxed accesses tell", "[model]") {
  CHECK(finding_of<fenced_message>(of_threads(2)).empty());
}

TEST_CASE("each order of accesses to one word is one run", "[model]") {
  CHECK(explore<counting<2>>(of_threads(2)).runs == 2);
  CHECK(explore<counting<4>>(of_threads(4)).runs == 24);
  limits many = of_threads(4);
  many.random_runs = 1000;
  const auto all = explore<counting<4>>(many);
  CHECK(all.finding.empty());
  CHECK(all.runs == 1000);
}

namespace {

struct guarded : model::scenario {
  model::mutex mutex;
  data<int> number;
  void run(unsigned /*thread*/) override {
    const std::lock_guard lock{mutex};
    number = number + 1;
  }
  void end() override { model::check(number == 2, "an addition is lost"); }
};

struct crossed_mutexes : model::scenario {
  model::mutex mutexes[2];
  void run(unsigned thread) override {
    const std::lock_guard first{mutexes[thread]};
    const std::lock_guard second{mutexes[1 - thread]};
  }
};

/// Checks before it says that it sleeps.
struct sleeper : model::scenario {
  model::event wake;
  atomic<bool> has_work{false}, is_asleep{false};
  void run(unsigned thread) override {
    if (thread == 0) {
      if (has_work.load()) return;
      is_asleep.store(true);
      wake.wait();
    } else {
      has_work.store(true);
      if (is_asleep.load()) wake.wake();
    }
  }
};

struct owner_and_user : model::scenario {
  struct part {
    data<int> number;
  };
  atomic<part*> shared{new part};
  void run(unsigned thread) override {
    if (thread == 0)
      delete shared.exchange(nullptr);
    else if (part* const at = shared.load())
      at->number = 1;
  }
};

struct forgetful : model::scenario {
  int* kept = nullptr;
  void run(unsigned thread) override {
    if (thread == 1) kept = new int{1};
  }
};

struct freed_twice : model::scenario {
  void run(unsigned thread) override {
    if (thread != 0) return;
    auto* const number = new int{1};
    delete number;
    ::operator delete(number);
  }
};

struct waits_for_nobody : model::scenario {
  atomic<bool> done{false};
  void run(unsigned thread) override {
    while (thread == 0 && !done.load()) model::yield();
  }
};

/// A thread that waits for a wake reads what was written before.
template <class Event>
struct told_by : model::scenario {
  data<int> bytes;
  Event told;
  void run(unsigned thread) override {
    if (thread == 0) {
      bytes = 7;
      told.wake();
    } else {
      told.wait();
      model::check(bytes == 7, "the message is another one");
    }
  }
};

/// Two threads yield to each other until a third one is done.
struct two_wait_for_one : model::scenario {
  atomic<bool> done{false};
  void run(unsigned thread) override {
    if (thread == 2) return done.store(true);
    while (!done.load()) model::yield();
  }
};

struct weak : model::scenario {
  atomic<int> number{0};
  int failures = 0;
  void run(unsigned /*thread*/) override {
    int expected = 0;
    while (!number.compare_exchange_weak(expected, 1)) ++failures;
  }
  void end() override { note(failures, 0); }
};

}  // namespace

TEST_CASE("a mutex orders what its holders do, and two of them may stop all threads", "[model]") {
  CHECK(finding_of<guarded>(of_threads(2)).empty());
  CHECK(finding_of<crossed_mutexes>(of_threads(2)).find("all threads wait for ever") == 0);
}

TEST_CASE("a lost wake-up is found", "[model]") {
  CHECK(finding_of<sleeper>(of_threads(2)).find("all threads wait for ever: thread 0") == 0);
}

TEST_CASE("memory that is used too late, freed twice, or never freed is found", "[model]") {
  CHECK_FALSE(finding_of<owner_and_user>(of_threads(2)).empty());
  CHECK(finding_of<freed_twice>(of_threads(2)).find("memory is freed twice") == 0);
  CHECK(finding_of<forgetful>(of_threads(2)).find("1 allocations are left") == 0);
}

TEST_CASE("a thread that waits for nobody in a loop is found", "[model]") {
  const limits bounded{.threads = 1, .preemptions = 1, .steps_max = 100};
  CHECK(finding_of<waits_for_nobody>(bounded).find("no end after 100 steps") == 0);
}

TEST_CASE("a watched word orders memory, an event does not", "[model]") {
  CHECK(finding_of<told_by<model::watched>>(of_threads(2)).empty());
  CHECK_FALSE(finding_of<told_by<model::event>>(of_threads(2)).empty());
}

TEST_CASE("threads that yield let every other one have its turn", "[model]") {
  const limits bounded{.threads = 3, .preemptions = 3, .stale_reads = 0, .steps_max = 100};
  CHECK(finding_of<two_wait_for_one>(bounded).empty());
}

TEST_CASE("a weak compare-exchange fails once in vain", "[model]") {
  CHECK(results_of<weak>(of_threads(1)) == results{{0, 0}, {1, 0}});
}
