#include "holding.hpp"

#include "borrower.hpp"

namespace cordma::detail {

holding::holding(cordma::borrower& b) noexcept
    : timer{&cordma::borrower::on_timer},
      borrower{&b},
      answered{b.context_.executor},
      flush_ended{b.context_.executor} {
  notice.of = this;
}

holding::~holding() {
  if (block != nullptr) block->release();
}

}  // namespace cordma::detail
