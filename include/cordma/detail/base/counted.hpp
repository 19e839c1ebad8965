#pragma once

#include <utility>

namespace cordma::detail {

/// Is destroyed with its last reference. \thread one.
class counted {
 public:
  counted(const counted&) = delete;
  counted& operator=(const counted&) = delete;
  void retain() noexcept { ++references_; }
  [[nodiscard]] unsigned references() const noexcept { return references_; }
  void release() noexcept {
    if (--references_ == 0) [[unlikely]]
      delete this;
  }

 protected:
  counted() noexcept = default;
  virtual ~counted() = default;

 private:
  unsigned references_ = 0;
};

/// A reference to a `T` that is counted, or to none. `T` may be incomplete where nobody uses it.
template <class T>
class counted_ref {
 public:
  counted_ref() noexcept = default;
  explicit counted_ref(T& to) noexcept : to_{&to} { to_->retain(); }
  counted_ref(const counted_ref& other) noexcept : to_{other.to_} {
    if (to_ != nullptr) to_->retain();
  }
  counted_ref(counted_ref&& other) noexcept : to_{std::exchange(other.to_, nullptr)} {}
  counted_ref& operator=(counted_ref other) noexcept {
    std::swap(to_, other.to_);
    return *this;
  }
  ~counted_ref() {
    if (to_ != nullptr) to_->release();
  }
  [[nodiscard]] T* get() const noexcept { return static_cast<T*>(to_); }
  T* operator->() const noexcept { return get(); }
  [[nodiscard]] explicit operator bool() const noexcept { return to_ != nullptr; }

 private:
  counted* to_ = nullptr;
};

}  // namespace cordma::detail
