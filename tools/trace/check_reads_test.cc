// The rules for READ requests and their responses.
#include <gtest/gtest.h>

#include "tools/trace/check_fixture.h"

namespace trace {
namespace {

TEST(CheckTest, ResponsesToAReadInOrder) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 4, 8).ack_req = true;
  c.Answer(kAck, 4);
  c.Read(5, 3000);
  c.Read(8, 10);
  c.Read(9, 0);
  c.Response(Operation::kReadResponseFirst, 5, 1024);
  c.Response(Operation::kReadResponseMiddle, 6, 1024);
  c.Response(Operation::kReadResponseLast, 7, 952);
  c.Response(Operation::kReadResponseOnly, 8, 10);
  c.Response(Operation::kReadResponseOnly, 9, 0);
  // The requester has missed one response, and then the remaining ones.
  c.Read(6, 1024, 0x10000 + 1024);
  c.Response(Operation::kReadResponseOnly, 6, 1024);
  c.Read(6, 1976, 0x10000 + 1024);
  c.Response(Operation::kReadResponseFirst, 6, 1024);
  c.Response(Operation::kReadResponseLast, 7, 952);
  c.Read(5, 2048);
  c.Response(Operation::kReadResponseFirst, 5, 1024);
  c.Response(Operation::kReadResponseLast, 6, 1024);
  c.Read(10, 5000);
  c.Response(Operation::kReadResponseFirst, 10, 1024);
  c.Read(10, 5000);  // requested again meanwhile
  c.Response(Operation::kReadResponseFirst, 10, 1024);
  EXPECT_EQ(c.Check(), Broken());
}

TEST(CheckTest, WrongResponsesToAReadAtEitherEnd) {
  for (const bool at_requester : {true, false}) {
    Capture c(at_requester);
    c.Read(5, 3000);
    c.Response(Operation::kReadResponseFirst, 5, 1024);
    c.Response(Operation::kReadResponseMiddle, 6, 1024);
    c.Response(Operation::kReadResponseLast, 7, 953);  // 4
    c.Read(8, 2048);
    c.Response(Operation::kReadResponseFirst, 8, 1024);
    c.Response(Operation::kReadResponseMiddle, 9, 1024);  // 7
    c.Read(10, 1000);
    c.Response(Operation::kReadResponseFirst, 10, 1024);  // 9
    c.Request(Operation::kWriteOnly, 11, 8);
    c.Response(Operation::kReadResponseOnly, 11, 0);  // 11
    EXPECT_EQ(c.Check(), (Broken{"read-response 4", "read-response 7",
                                 "read-response 9", "read-response 11"}));
  }
}

TEST(CheckTest, AResponseThatLeavesOutAPacket) {
  for (const bool at_requester : {true, false}) {
    Capture c(at_requester);
    c.Read(5, 4096);
    c.Request(Operation::kSendOnly, 9, 8).ack_req = true;
    c.Response(Operation::kReadResponseFirst, 5, 1024);
    c.Response(Operation::kReadResponseMiddle, 7, 1024);
    c.Answer(kAck, 9, 2);
    // At the receiver, some may have been lost.
    EXPECT_EQ(c.Check(), at_requester
                             ? Broken()
                             : (Broken{"read-response 4", "read-response 5"}));
  }
}

TEST(CheckTest, AReadThatIsAskedForAgain) {
  Capture c;
  c.Read(5, 3000);
  c.Response(Operation::kReadResponseFirst, 5, 1024);
  c.Read(6, 1976, 0x10000 + 1024);
  c.Read(6, 1024, 0x10000 + 1024);
  c.Read(5, 3000);
  EXPECT_EQ(c.Check(), Broken());
  c.Read(6, 1976, 0x10000);            // 6: the address
  c.Read(6, 1976, 0x10000 + 1024, 6);  // 7: the R_Key
  c.Read(6, 3000, 0x10000 + 1024);     // 8: beyond the end
  c.Read(6, 1000, 0x10000 + 1024);     // 9: ends within a packet
  EXPECT_EQ(c.Check(), (Broken{"read-repeat 6", "read-repeat 7",
                               "read-repeat 8", "read-repeat 9"}));
}

// No packet shows the path MTU.
TEST(CheckTest, AShortReadThatIsAskedForAgain) {
  Capture c;
  c.Read(5, 200);
  c.Read(5, 200);
  c.Read(5, 100);
  EXPECT_EQ(c.Check(), Broken{"read-repeat 3"});
}

}  // namespace
}  // namespace trace
