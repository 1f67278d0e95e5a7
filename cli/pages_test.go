package cli_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/cli"
)

// TestReleaseStartupUnmapsTheExecutable checks that pages of the executable are released, and come
// back when they are needed.
func TestReleaseStartupUnmapsTheExecutable(t *testing.T) {
	before := mapped(t)
	if err := cli.ReleaseStartup(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(t); after == 0 || after > before*3/4 {
		t.Errorf("%d KiB of the executable are mapped, and were %d", after, before)
	}
}

// mapped returns how many KiB of the executable's read-only pages this process has mapped.
func mapped(t *testing.T) (sum int) {
	t.Helper()
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	rss := regexp.MustCompile(`(?m)^Rss: +(\d+) kB`)
	for _, one := range strings.Split(string(text), "VmFlags:") {
		if match := rss.FindStringSubmatch(one); match != nil && strings.Contains(one, " "+executable+"\n") && !strings.Contains(one, " rw-p ") {
			n, _ := strconv.Atoi(match[1])
			sum += n
		}
	}
	return sum
}
