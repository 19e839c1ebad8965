#include "holding.hpp"

#include "borrower.hpp"

namespace cordma::detail {

holding::holding(borrower& b) noexcept
    : timer{&borrower::on_timer},
      home{&b},
      answered{b.context_.home},
      flush_ended{b.context_.home} {
  notice.of = this;
}

holding::~holding() {
  if (block != nullptr) block->let_go();
}

}  // namespace cordma::detail
