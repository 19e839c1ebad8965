#pragma once

#include <cordma/detail/base/assert.hpp>

namespace cordma {

template <class T>
class intrusive_list;

/// Makes a derived `T` linkable into one `intrusive_list<T>` at a time. The destructor unlinks, so
/// a destroyed coroutine frame leaves no dangling neighbour. Moving a hook moves its place in the
/// list, so that a handle can be moved while it waits.
template <class T>
class list_hook {
 public:
  list_hook() noexcept = default;
  list_hook(list_hook&& other) noexcept { replace_in_list(other); }
  list_hook& operator=(list_hook&& other) noexcept {
    if (this == &other) return *this;
    unlink();
    replace_in_list(other);
    return *this;
  }
  ~list_hook() { unlink(); }

  [[nodiscard]] bool is_linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept {
    if (!is_linked()) return;
    prev_->next_ = next_;
    next_->prev_ = prev_;
    next_ = nullptr;
  }

 private:
  friend class intrusive_list<T>;
  void replace_in_list(list_hook& other) noexcept {
    if (!other.is_linked()) return;
    insert_before(other);
    other.unlink();
  }
  void insert_before(list_hook& position) noexcept {
    prev_ = position.prev_;
    next_ = &position;
    prev_->next_ = this;
    position.prev_ = this;
  }

  list_hook* prev_;  // Valid while linked: operations have several hooks, and most link none.
  list_hook* next_ = nullptr;
};

/// A list of objects that derive from `list_hook<T>`; owns none of them and never allocates.
template <class T>
class intrusive_list {
 public:
  intrusive_list() noexcept { ends_.prev_ = ends_.next_ = &ends_; }
  intrusive_list(intrusive_list&&) = delete;
  ~intrusive_list() {
    while (!empty()) ends_.next_->unlink();
    ends_.next_ = nullptr;
  }

  [[nodiscard]] bool empty() const noexcept { return ends_.next_ == &ends_; }
  [[nodiscard]] bool has_one() const noexcept { return !empty() && ends_.next_ == ends_.prev_; }
  [[nodiscard]] T& front() noexcept {
    CORDMA_ASSERT(!empty(), "front of an empty list");
    return static_cast<T&>(*ends_.next_);
  }
  [[nodiscard]] T& back() noexcept {
    CORDMA_ASSERT(!empty(), "back of an empty list");
    return static_cast<T&>(*ends_.prev_);
  }
  void push_back(T& item) noexcept { push_before(ends_, item); }
  void push_front(T& item) noexcept { push_before(*ends_.next_, item); }
  T& pop_front() noexcept {
    T& item = front();
    list_hook<T>& hook = item;
    ends_.next_ = hook.next_;
    hook.next_->prev_ = &ends_;
    hook.next_ = nullptr;
    return item;
  }
  /// Returns the item behind `item`, which is in this list; null: it is the last.
  [[nodiscard]] T* after(T& item) noexcept {
    list_hook<T>* const next = static_cast<list_hook<T>&>(item).next_;
    return next != &ends_ ? static_cast<T*>(next) : nullptr;
  }
  /// Returns the first item that `is_wanted`; null: none.
  template <class Predicate>
  [[nodiscard]] T* find(Predicate is_wanted) noexcept {
    for (list_hook<T>* at = ends_.next_; at != &ends_; at = at->next_)
      if (is_wanted(static_cast<T&>(*at))) return static_cast<T*>(at);
    return nullptr;
  }
  /// Calls `f` with each item, in order; `f` must not unlink any.
  template <class F>
  void for_each(F f) noexcept {
    for (list_hook<T>* at = ends_.next_; at != &ends_; at = at->next_) f(static_cast<T&>(*at));
  }
  /// Moves everything of `other` to the back of this list, in order.
  void splice_back(intrusive_list& other) noexcept {
    if (other.empty()) return;
    list_hook<T>* const first = other.ends_.next_;
    list_hook<T>* const last = other.ends_.prev_;
    other.ends_.prev_ = other.ends_.next_ = &other.ends_;
    first->prev_ = ends_.prev_;
    ends_.prev_->next_ = first;
    last->next_ = &ends_;
    ends_.prev_ = last;
  }

 private:
  void push_before(list_hook<T>& position, T& item) noexcept {
    list_hook<T>& hook = item;
    CORDMA_ASSERT(!hook.is_linked(), "already in a list");
    hook.insert_before(position);
  }
  list_hook<T> ends_;
};

}  // namespace cordma
