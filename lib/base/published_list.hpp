#pragma once

#include <cordma/detail/base/step.hpp>

#include <memory>

namespace cordma::detail {

/// A list that only grows, for any thread to traverse. Items must live as long as any thread
/// traverses the list. \thread `add` one at a time; `for_each` any, and all at once. \cost one
/// `new` per `add`; a traversal takes no lock.
template <class T>
class published_list {
 public:
  published_list() noexcept = default;
  published_list(published_list&&) = delete;
  ~published_list() {
    for (const node* n = newest_.load(std::memory_order_relaxed); n != nullptr;) {
      const std::unique_ptr<const node> gone{n};
      n = gone->before;
    }
  }

  void add(const T& item) {
    // Release publishes the node, and the item's construction, to the acquire of `for_each`.
    newest_.store(new node{&item, newest_.load(std::memory_order_relaxed)},
                  std::memory_order_release);
  }
  /// Visits the newest item first, and none that is added meanwhile.
  template <class F>
  void for_each(F f) const {
    for (const node* n = newest_.load(std::memory_order_acquire); n != nullptr; n = n->before)
      f(*n->item);
  }

 private:
  struct node {
    modelled_data<const T*> item;
    modelled_data<const node*> before;
  };
  modelled_atomic<const node*> newest_{nullptr};
};

}  // namespace cordma::detail
