#include "tools/rxe_user_cli/table.h"

#include <algorithm>

namespace rxe_user_cli {

std::string Aligned(const std::vector<Row>& rows) {
  std::vector<size_t> width;
  for (const Row& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i + 1 < row.size(); ++i) {
      width[i] = std::max(width[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) text.append(width[i] + 2 - row[i].size(), ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace rxe_user_cli
