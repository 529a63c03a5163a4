#include "verbs_api/rsockets/settings.h"

#include <gtest/gtest.h>

#include <fstream>

namespace rsockets {
namespace {

class SettingsTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(testing::TempDir() + "/" + name) << text;
  }
  Settings Read() { return Settings::Read(testing::TempDir()); }
};

TEST_F(SettingsTest, WithoutFilesTheDefaultsHold) {
  const Settings settings = Settings::Read("/nonexistent");
  EXPECT_EQ(settings.receive_buffer, 131072u);
  EXPECT_EQ(settings.send_queue, 384u);
}

TEST_F(SettingsTest, FilesSetThem) {
  Write("mem_default", "1000001\n");
  Write("wmem_default", "1");
  Write("sqsize_default", "1000000");
  Write("rqsize_default", "0");
  Write("inline_default", "128");
  Write("iomap_size", "1000");
  Write("polling_time", "-3");
  const Settings settings = Read();
  // Rounded down to an even number.
  EXPECT_EQ(settings.receive_buffer, 1000000u);
  EXPECT_EQ(settings.send_buffer, 4096u);
  EXPECT_EQ(settings.send_queue, 0xfffeu);
  EXPECT_EQ(settings.receive_queue, 16u);
  EXPECT_EQ(settings.inline_data, 128u);
  EXPECT_EQ(settings.iomap_entries, 768u);
  EXPECT_EQ(settings.polling_us, 10u);
}

}  // namespace
}  // namespace rsockets
