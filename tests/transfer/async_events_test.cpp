#include <cordma/transfer/async_events.hpp>
