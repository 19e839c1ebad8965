#include <cordma/base/intrusive_list.hpp>

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

namespace {

struct item : cordma::list_hook<item> {
  explicit item(int n) : number{n} {}
  int number;
};

std::vector<int> drain(cordma::intrusive_list<item>& list) {
  std::vector<int> numbers;
  while (!list.empty()) numbers.push_back(list.pop_front().number);
  return numbers;
}

}  // namespace

TEST_CASE("a list gives its items in the order they came", "[base]") {
  item a{1};
  item b{2};
  item c{3};
  cordma::intrusive_list<item> list;
  CHECK(list.empty());
  list.push_back(b);
  list.push_back(c);
  list.push_front(a);
  CHECK(drain(list) == std::vector{1, 2, 3});
  CHECK_FALSE(a.is_linked());
}

TEST_CASE("an item that is destroyed leaves its list", "[base]") {
  item a{1};
  std::optional<item> b{std::in_place, 2};
  item c{3};
  cordma::intrusive_list<item> list;
  list.push_back(a);
  list.push_back(*b);
  list.push_back(c);
  b.reset();
  CHECK(drain(list) == std::vector{1, 3});
}

TEST_CASE("a list that is destroyed lets its items go", "[base]") {
  item a{1};
  {
    cordma::intrusive_list<item> list;
    list.push_back(a);
  }
  CHECK_FALSE(a.is_linked());
}

TEST_CASE("splicing moves everything, in order, and empties the other list", "[base]") {
  item a{1};
  item b{2};
  item c{3};
  cordma::intrusive_list<item> first;
  cordma::intrusive_list<item> second;
  first.push_back(a);
  second.push_back(b);
  second.push_back(c);
  first.splice_back(second);
  CHECK(second.empty());
  first.splice_back(second);
  CHECK(drain(first) == std::vector{1, 2, 3});
}
