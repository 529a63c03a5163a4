// A broker that serves all users, a victim that must stay unharmed, and an
// attacker. For tests, which need root.
#ifndef RXE_USER_BROKER_HOSTILE_FIXTURE_H_
#define RXE_USER_BROKER_HOSTILE_FIXTURE_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "rxe_user/broker/test_peer.h"

namespace rxe_user::broker {

// Clock ticks of CPU time that a process has used.
inline long CpuTicks(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(in, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  long user = 0, system = 0;
  fields >> user >> system;
  return user + system;
}

class HostileTest : public BrokerTest {
 protected:
  void SetUp() override {
    if (!Root()) GTEST_SKIP() << "needs root";
    BrokerTest::SetUp();
    broker_.emplace();
    victim_.emplace();
    ASSERT_EQ(victim_->Start(), "");
  }
  void TearDown() override {
    victim_.reset();
    broker_.reset();
    if (Root()) BrokerTest::TearDown();
  }

  // Runs `attack` as user `uid` in a child. `attack` returns what went wrong
  // (empty: nothing); the child then stays, with everything that it holds,
  // until EndAttack. There may be several attackers.
  void Attack(const std::function<std::string()>& attack,
              uid_t uid = kSomebody) {
    int said[2];
    ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
    attackers_.push_back(fork());
    if (attackers_.back() == 0) {
      Become(uid);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const std::string wrong = attack() + "\n";
      (void)!write(said[1], wrong.data(), wrong.size());
      for (;;) pause();
    }
    close(said[1]);
    const UniqueFd answer(said[0]);
    std::string wrong;
    char byte;
    while (read(answer.get(), &byte, 1) == 1 && byte != '\n') wrong += byte;
    EXPECT_EQ(byte, '\n') << "the attacker died";
    EXPECT_EQ(wrong, "");
  }
  // Ends all attackers.
  void EndAttack() {
    for (const pid_t attacker : attackers_) {
      kill(attacker, SIGKILL);
      waitpid(attacker, nullptr, 0);
    }
    attackers_.clear();
  }
  // Kills the broker and waits for the next one.
  void ReplaceBroker() {
    const pid_t old = KillBroker();
    EXPECT_TRUE(Eventually([&] {
      const pid_t now = BrokerPid();
      return now != 0 && now != old;
    }));
  }
  // No datagram for the victim is lost.
  void ExpectVictimUnharmed() {
    Asker asker;
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(asker.AskOnce(victim_->slot())) << i;
    }
    EXPECT_EQ(asker.asked(), 50);
  }

  std::optional<PublicBroker> broker_;
  std::optional<Peer> victim_;
  std::vector<pid_t> attackers_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_HOSTILE_FIXTURE_H_
