#include "arena.hpp"
#include "checker.hpp"

#include <iomanip>
#include <sstream>

namespace model {

namespace {

const char* name_of(kind what) {
  switch (what) {
    case kind::load: return "load";
    case kind::store: return "store";
    case kind::change: return "change";
    case kind::fence: return "fence";
    case kind::lock: return "lock";
    case kind::try_lock: return "try_lock";
    case kind::unlock: return "unlock";
    case kind::wait: return "wait";
    case kind::wake: return "wake";
  }
  return "?";
}

const char* name_of(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed: return "relaxed";
    case std::memory_order_consume: return "consume";
    case std::memory_order_acquire: return "acquire";
    case std::memory_order_release: return "release";
    case std::memory_order_acq_rel: return "acq_rel";
    default: return "seq_cst";
  }
}

}  // namespace

/// A member is named by how many objects and data of the model its owner has before it.
std::string checker::name_of(const void* at, const char* type) const {
  for (const named& one : names_) {
    const auto* const begin = static_cast<const std::byte*>(one.at);
    if (at < begin || at >= begin + one.bytes) continue;
    const auto is_before = [&](const void* other) { return other >= begin && other < at; };
    std::size_t rank = 0;
    for (unsigned n = 0; n < count_; ++n) rank += is_before(objects_[n].at) ? 1 : 0;
    for (const shared_data& data : data_) rank += is_before(data.at) ? 1 : 0;
    if (one.members.empty()) return one.name;
    return one.name + "." + (rank < one.members.size() ? one.members[rank] : "?");
  }
  std::ostringstream text;
  text << type << " at " << std::hex << "0x" << arena::offset(at);
  return text.str();
}

std::string checker::value_of(word value) const {
  const auto* const at = reinterpret_cast<const void*>(value);
  std::ostringstream text;
  if (!arena::has(at)) {
    text << static_cast<std::int64_t>(value);
    return text.str();
  }
  for (const named& one : names_) {
    const auto* const begin = static_cast<const std::byte*>(one.at);
    if (at < begin || at >= begin + one.bytes) continue;
    text << "&" << one.name << "+" << static_cast<const std::byte*>(at) - begin;
    return text.str();
  }
  text << "&0x" << std::hex << arena::offset(at);
  return text.str();
}

std::string checker::line_of(const traced& one) const {
  std::ostringstream text;
  text << "  thread " << one.thread - 1 << "  " << std::left << std::setw(9)
       << model::name_of(one.kind);
  if (one.kind == kind::fence) {
    text << model::name_of(one.order) << "\n";
    return text.str();
  }
  const shared_object& of = objects_[one.object];
  text << name_of(of.at, of.type);
  if (!of.stores.empty()) {
    text << " = " << value_of(one.value) << ", " << model::name_of(one.order);
    if (!one.is_done) text << (one.kind == kind::load ? ", an older store" : ", not changed");
  } else if (!one.is_done) {
    text << ", in vain";
  }
  text << "\n";
  return text.str();
}

std::string checker::waiting() const {
  std::string text;
  for (unsigned index = 1; index <= limits_.threads; ++index) {
    const thread& one = threads_[index];
    const shared_object& of = objects_[one.next.object];
    if (!one.is_over)
      text += " thread " + std::to_string(index - 1) + " for " + name_of(of.at, of.type) + ";";
  }
  return text;
}

std::string checker::schedule() const {
  std::ostringstream text;
  text << "CORDMA_MODEL_CHOICES=\"";
  for (std::size_t n = 0; n < at_ && n < choices_.size(); ++n)
    text << (n == 0 ? "" : " ") << choices_[n].taken;
  text << "\"\n";
  for (const traced& one : trace_) text << line_of(one);
  return text.str();
}

}  // namespace model
