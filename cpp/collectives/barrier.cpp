#include "collectives/collectives.h"

namespace sirtaki {

void barrier(Group& group) {
  group.begin_small();
  group.publish();
  for (int m = 0; m < group.size(); ++m) {
    if (m != group.rank()) group.await_published(m, 1);
  }
  group.end();
}

}  // namespace sirtaki
