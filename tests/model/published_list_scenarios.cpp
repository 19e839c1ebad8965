#include "explorations.hpp"

#include <array>

#include "base/published_list.hpp"

namespace model {
namespace {

/// One thread adds items; the others visit what is there, twice.
struct adder_and_visitors : scenario {
  std::array<data<unsigned>, 3> items;
  cordma::detail::published_list<data<unsigned>> list;

  adder_and_visitors() {
    name(items, "items");
    name(list, "list", {"newest_"});
  }
  void run(unsigned thread) override {
    if (thread == 0) {
      for (unsigned n = 0; n < items.size(); ++n) {
        items[n] = n;
        list.add(items[n]);
      }
      return;
    }
    const unsigned before = visit();
    check(visit() >= before, "no item is lost");
  }
  unsigned visit() {
    unsigned count = 0;
    auto last = unsigned(items.size());
    list.for_each([&](const data<unsigned>& item) {
      check(item == last - 1 || count == 0, "the newest item comes first");
      last = item;
      ++count;
    });
    check(count == 0 || last == 0, "no item is left out");
    return count;
  }
};

}  // namespace

std::vector<exploration> explorations_of_published_list() {
  return {
      {"published list, adder and visitor", {.threads = 2}, 40, explore<adder_and_visitors>},
      {"published list, adder and two visitors", {.threads = 3}, 2000, explore<adder_and_visitors>},
      {"published list, adder and three visitors",
       {.threads = 4, .random_runs = 1},
       0,
       explore<adder_and_visitors>},
  };
}

}  // namespace model
