package cache_test

import (
	"os"
	"testing"

	"github.com/nereid-serving/nereid/conda/cache"
	"github.com/nereid-serving/nereid/internal/testkit"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(cache.RoleVariable); text != "" {
		os.Exit(cache.Play(text))
	}
	testkit.Main(m)
}
