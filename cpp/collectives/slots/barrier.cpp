#include "collectives/collectives.h"

namespace sirtaki {

Task barrier(Group& group) {
  co_await group.begin_small();
  group.publish();
  co_await group.all_published(1);
  group.end();
}

}  // namespace sirtaki
