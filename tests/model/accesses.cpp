#include "arena.hpp"
#include "checker.hpp"

#include <utility>

namespace model {

namespace {

constexpr std::memory_order no_order = std::memory_order_relaxed;

bool is_inside(const void* at, const void* from, std::size_t bytes) noexcept {
  const auto* const begin = static_cast<const std::byte*>(from);
  return at >= begin && at < begin + bytes;
}

}  // namespace

bool independent(const operation& a, const operation& b) noexcept {
  const bool is_a_fence = a.kind == kind::fence;
  const bool is_b_fence = b.kind == kind::fence;
  constexpr auto in_order = std::memory_order_seq_cst;
  if (is_a_fence || is_b_fence) return a.order != in_order || b.order != in_order;
  if (a.object != b.object) return true;
  return a.kind == kind::load && b.kind == kind::load &&
         (a.order != in_order || b.order != in_order);
}

// ---- construction and use

unsigned checker::make(const void* at, const char* type) {
  if (count_ == objects_max) {
    find("more than " + std::to_string(objects_max) + " atomics, mutexes and events in one run");
    return 0;
  }
  shared_object& one = objects_[count_];
  one.at = at;
  one.type = type;
  one.maker = self_;
  one.made_at = time();
  one.is_gone = one.is_set = false;
  one.accessed = {};
  one.stores.clear();
  one.holder = -1;
  one.published = {};
  return count_++;
}

unsigned checker::make_atomic(const void* at, word value) {
  const unsigned object = make(at, "atomic");
  objects_[object].stores.push_back({value, now()});
  return object;
}

unsigned checker::make_data(const void* at) {
  data_.push_back({at, false, self_, time(), {}});
  return static_cast<unsigned>(data_.size() - 1);
}

/// The other thread's access has to happen before what this one does.
void checker::require_before(unsigned other, std::uint16_t then, const char* what, const void* at) {
  if (now().times[other] >= then) return;
  find(name_of(at, "data") + ": " + what + " thread " + std::to_string(other - 1) +
       " is not ordered with what thread " + std::to_string(self_ - 1) + " does now");
}

shared_object& checker::use(unsigned object) {
  shared_object& one = objects_[object];
  if (one.is_gone) find(name_of(one.at, one.type) + " is used after it was freed");
  require_before(one.maker, one.made_at, "the construction by", one.at);
  one.accessed[self_] = time();
  return one;
}

shared_data& checker::use_data(unsigned data) {
  shared_data& one = data_[data];
  if (one.is_gone) find(name_of(one.at, "data") + " is used after it was freed");
  require_before(one.writer, one.written_at, "a write by", one.at);
  return one;
}

void checker::read(unsigned data) { use_data(data).read_at[self_] = time(); }

void checker::write(unsigned data) {
  shared_data& one = use_data(data);
  for (unsigned n = 0; n < threads_max; ++n) require_before(n, one.read_at[n], "a read by", one.at);
  one.writer = self_;
  one.written_at = time();
  one.read_at = {};
}

void checker::freed(const void* at, std::size_t bytes) {
  for (unsigned object = 0; object < count_; ++object) {
    shared_object& one = objects_[object];
    if (one.is_gone || !is_inside(one.at, at, bytes)) continue;
    for (unsigned n = 0; n < threads_max; ++n)
      require_before(n, one.accessed[n], "before it is freed, the use by", one.at);
    one.is_gone = true;
  }
  for (shared_data& one : data_) {
    if (one.is_gone || !is_inside(one.at, at, bytes)) continue;
    require_before(one.writer, one.written_at, "before it is freed, the write by", one.at);
    for (unsigned n = 0; n < threads_max; ++n)
      require_before(n, one.read_at[n], "before it is freed, the read by", one.at);
    one.is_gone = true;
  }
}

void checker::end_access(model::kind what, unsigned object, std::memory_order order, word value,
                         bool is_done) {
  if (self_ == 0) return;
  const std::size_t store = what == kind::fence ? 0 : now().stores[object];
  trace_.push_back({static_cast<std::uint8_t>(self_), what, static_cast<std::uint8_t>(object),
                    order, is_done, static_cast<std::uint16_t>(store), value});
  ++now().times[self_];
}

// ---- atomics

/// The thread learns what the store that it reads has published.
void checker::see(const view& published, std::memory_order order) {
  if (acquires(order))
    now().join(published);
  else
    me().known.acquirable.join(published);
}

unsigned checker::oldest(const shared_object& of, unsigned object, std::memory_order order) {
  const auto newest = static_cast<unsigned>(of.stores.size() - 1);
  if (self_ == 0) return newest;
  unsigned first = now().stores[object];
  if (order == std::memory_order_seq_cst)
    first = std::max<unsigned>(first, in_order_.stores[object]);
  return first;
}

void checker::note_read(unsigned object, unsigned store, std::memory_order order) {
  const auto seen = static_cast<std::uint16_t>(store);
  now().stores[object] = std::max(now().stores[object], seen);
  if (order == std::memory_order_seq_cst)
    in_order_.stores[object] = std::max(in_order_.stores[object], seen);
}

void checker::append(shared_object& to, unsigned object, word value, view published,
                     std::memory_order order) {
  note_read(object, static_cast<unsigned>(to.stores.size()), order);
  published.join(releases(order) ? now() : me().known.released);
  to.stores.push_back({value, published});
}

word checker::load(unsigned object, std::memory_order order) {
  step({kind::load, static_cast<std::uint8_t>(object), order});
  const shared_object& of = use(object);
  const auto newest = static_cast<unsigned>(of.stores.size() - 1);
  const unsigned store = newest - choose_store(newest - oldest(of, object, order) + 1);
  note_read(object, store, order);
  see(of.stores[store].published, order);
  const word value = of.stores[store].value;
  end_access(kind::load, object, order, value, store == newest);
  return value;
}

void checker::store(unsigned object, word value, std::memory_order order) {
  step({kind::store, static_cast<std::uint8_t>(object), order});
  append(use(object), object, value, {}, order);
  end_access(kind::store, object, order, value, true);
}

word checker::change(unsigned object, detail::changed how, word operand, std::memory_order order) {
  step({kind::change, static_cast<std::uint8_t>(object), order});
  shared_object& of = use(object);
  // A release sequence: whoever reads the new value also sees what the one before published.
  const stored before = of.stores.back();
  see(before.published, order);
  const word value = how(before.value, operand);
  append(of, object, value, before.published, order);
  end_access(kind::change, object, order, value, true);
  return before.value;
}

bool checker::compare_exchange(unsigned object, word& expected, word desired,
                               std::memory_order success, std::memory_order failure, bool is_weak) {
  step({kind::change, static_cast<std::uint8_t>(object), success});
  shared_object& of = use(object);
  // A failure may read any store of another value; a success reads the newest.
  const auto newest = static_cast<unsigned>(of.stores.size() - 1);
  std::array<unsigned, 64> stores{};
  unsigned count = 0;
  for (unsigned n = newest + 1; n-- > oldest(of, object, failure) && count < stores.size();)
    if (n == newest || of.stores[n].value != expected) stores[count++] = n;
  const unsigned store = stores[choose_store(count)];
  const stored before = of.stores[store];
  bool succeeds = before.value == expected;
  if (succeeds && is_weak && self_ != 0 && !me().has_failed_in_vain)
    succeeds = !(me().has_failed_in_vain = choose(2) == 1);
  if (succeeds) {
    see(before.published, success);
    append(of, object, desired, before.published, success);
  } else {
    note_read(object, store, failure);
    see(before.published, failure);
    expected = before.value;
  }
  end_access(kind::change, object, succeeds ? success : failure, succeeds ? desired : before.value,
             succeeds);
  return succeeds;
}

void checker::fence(std::memory_order order) {
  step({kind::fence, 0, order});
  knowledge& known = me().known;
  if (acquires(order)) known.now.join(known.acquirable);
  if (order == std::memory_order_seq_cst) {
    known.now.join_stores(in_order_);
    in_order_.join_stores(known.now);
  }
  if (releases(order)) known.released = known.now;
  end_access(kind::fence, 0, order, 0, true);
}

// ---- mutexes and events

void checker::lock(unsigned mutex) {
  step({kind::lock, static_cast<std::uint8_t>(mutex)});
  shared_object& of = use(mutex);
  of.holder = static_cast<int>(self_);
  now().join(of.published);
  end_access(kind::lock, mutex, no_order, 0, true);
}

bool checker::try_lock(unsigned mutex) {
  step({kind::try_lock, static_cast<std::uint8_t>(mutex)});
  shared_object& of = use(mutex);
  const bool is_free = of.holder < 0;
  if (is_free) {
    of.holder = static_cast<int>(self_);
    now().join(of.published);
  }
  end_access(kind::try_lock, mutex, no_order, is_free, is_free);
  return is_free;
}

void checker::unlock(unsigned mutex) {
  step({kind::unlock, static_cast<std::uint8_t>(mutex)});
  shared_object& of = use(mutex);
  if (of.holder != static_cast<int>(self_))
    find(name_of(of.at, of.type) + " is unlocked by a thread that does not hold it");
  of.holder = -1;
  of.published = now();
  end_access(kind::unlock, mutex, no_order, 0, true);
}

void checker::wait(unsigned event) {
  step({kind::wait, static_cast<std::uint8_t>(event)});
  shared_object& of = use(event);
  of.is_set = false;
  now().join(of.published);
  end_access(kind::wait, event, no_order, 1, true);
}

bool checker::try_wait(unsigned event) {
  step({kind::try_lock, static_cast<std::uint8_t>(event)});
  const bool was_set = std::exchange(use(event).is_set, false);
  end_access(kind::wait, event, no_order, was_set, was_set);
  return was_set;
}

void checker::wake(unsigned event) {
  step({kind::wake, static_cast<std::uint8_t>(event)});
  shared_object& of = use(event);
  of.is_set = true;
  if (of.type == detail::watched_type) of.published.join(now());
  end_access(kind::wake, event, no_order, 1, true);
}

// ---- what scenarios call

namespace {

/// Calls a function of the checker, whose memory is not the scenario's.
template <auto function, class... Arguments>
auto outside(Arguments&&... arguments) noexcept {
  const arena::outside own;
  return (checker::instance().*function)(std::forward<Arguments>(arguments)...);
}

}  // namespace

namespace detail {

unsigned make_atomic(const void* at, word value) noexcept {
  return outside<&checker::make_atomic>(at, value);
}
word load(unsigned object, std::memory_order order) noexcept {
  return outside<&checker::load>(object, order);
}
void store(unsigned object, word value, std::memory_order order) noexcept {
  outside<&checker::store>(object, value, order);
}
word change(unsigned object, changed how, word operand, std::memory_order order) noexcept {
  return outside<&checker::change>(object, how, operand, order);
}
bool compare_exchange(unsigned object, word& expected, word desired, std::memory_order success,
                      std::memory_order failure, bool is_weak) noexcept {
  return outside<&checker::compare_exchange>(object, expected, desired, success, failure, is_weak);
}
unsigned make_mutex(const void* at) noexcept { return outside<&checker::make>(at, "mutex"); }
void lock(unsigned mutex) noexcept { outside<&checker::lock>(mutex); }
bool try_lock(unsigned mutex) noexcept { return outside<&checker::try_lock>(mutex); }
void unlock(unsigned mutex) noexcept { outside<&checker::unlock>(mutex); }
unsigned make_event(const void* at, const char* type) noexcept {
  return outside<&checker::make>(at, type);
}
void wait(unsigned event) noexcept { outside<&checker::wait>(event); }
bool try_wait(unsigned event) noexcept { return outside<&checker::try_wait>(event); }
void wake(unsigned event) noexcept { outside<&checker::wake>(event); }
unsigned make_data(const void* at) noexcept { return outside<&checker::make_data>(at); }
void read(unsigned data) noexcept { outside<&checker::read>(data); }
void write(unsigned data) noexcept { outside<&checker::write>(data); }

}  // namespace detail

void atomic_thread_fence(std::memory_order order) noexcept { outside<&checker::fence>(order); }

}  // namespace model
