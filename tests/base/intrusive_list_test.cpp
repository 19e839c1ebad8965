#include <cordma/detail/base/intrusive_list.hpp>

#include "support/aborts.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <list>
#include <random>
#include <vector>

using namespace cordma;

namespace {

struct item : list_hook<item> {
  explicit item(int n) noexcept : number{n} {}
  int number;
};

std::vector<int> drain(intrusive_list<item>& list) {
  std::vector<int> numbers;
  while (!list.empty()) numbers.push_back(list.pop_front().number);
  return numbers;
}

}  // namespace

TEST_CASE("an intrusive list keeps the order in which things were added", "[base]") {
  intrusive_list<item> list;
  item a{1}, b{2}, c{3};
  list.push_back(a);
  list.push_back(b);
  list.push_back(c);
  CHECK(list.front().number == 1);
  CHECK(drain(list) == std::vector{1, 2, 3});
  CHECK_FALSE(b.is_linked());
}

TEST_CASE("the first item that is wanted is found", "[base]") {
  intrusive_list<item> list;
  item a{1}, b{2}, c{2};
  CHECK(list.find([](const item&) { return true; }) == nullptr);
  for (item* one : {&a, &b, &c}) list.push_back(*one);
  CHECK(list.find([](const item& i) { return i.number == 2; }) == &b);
  CHECK(list.find([](const item& i) { return i.number == 3; }) == nullptr);
}

TEST_CASE("an item that is destroyed or unlinked leaves its list", "[base]") {
  intrusive_list<item> list;
  item a{1}, c{3};
  list.push_back(a);
  {
    item b{2};
    list.push_back(b);
    list.push_back(c);
  }
  a.unlink();
  a.unlink();
  CHECK(drain(list) == std::vector{3});
}

TEST_CASE("an item that is moved takes its place along", "[base]") {
  intrusive_list<item> list, other;
  item a{1}, b{2}, c{3}, d{4};
  list.push_back(a);
  list.push_back(b);
  list.push_back(c);
  item moved{std::move(b)};
  CHECK_FALSE(b.is_linked());
  other.push_back(d);
  d = std::move(a);  // Leaves `other` for the place of `a`.
  CHECK(other.empty());
  CHECK(drain(list) == std::vector{1, 2, 3});
  item unlinked{std::move(moved)};
  CHECK_FALSE(unlinked.is_linked());
}

TEST_CASE("splicing moves everything to the back, in order", "[base]") {
  intrusive_list<item> list, other;
  item a{1}, b{2}, c{3};
  list.splice_back(other);
  CHECK(list.empty());
  list.push_back(a);
  other.push_back(b);
  other.push_back(c);
  list.splice_back(other);
  CHECK(other.empty());
  CHECK(drain(list) == std::vector{1, 2, 3});
}

TEST_CASE("a list that is destroyed lets its items go", "[base]") {
  item a{1};
  {
    intrusive_list<item> list;
    list.push_back(a);
  }
  CHECK_FALSE(a.is_linked());
}

TEST_CASE("a list behaves like std::list through 10^5 random steps", "[base]") {
  std::mt19937 random{1};
  std::vector<item> items;
  for (int n = 0; n < 50; ++n) items.emplace_back(n);
  intrusive_list<item> list;
  std::list<int> model;
  for (int step = 0; step < 100'000; ++step) {
    item& one = items[random() % items.size()];
    if (one.is_linked()) {
      one.unlink();
      model.remove(one.number);
    } else if (random() % 2 == 0) {
      list.push_back(one);
      model.push_back(one.number);
    } else {
      list.push_front(one);
      model.push_front(one.number);
    }
    REQUIRE(list.empty() == model.empty());
    if (!model.empty()) REQUIRE(list.front().number == model.front());
  }
  const std::vector<int> rest = drain(list);
  CHECK(std::equal(rest.begin(), rest.end(), model.begin(), model.end()));
}

TEST_CASE("adding what is in a list already is a broken contract", "[base]") {
  const auto death = support::run_in_child([] {
    intrusive_list<item> list;
    item a{1};
    list.push_back(a);
    list.push_back(a);
  });
  CHECK(death.aborted);
  CHECK(death.text.find("already in a list") != std::string::npos);
}
