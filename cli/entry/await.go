package entry

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// lookApart is the interval between checks for a missing directory.
const lookApart = 100 * time.Millisecond

// AwaitRoots waits until each path is a readable directory, ctx ends, or limit has passed. It does
// not wait for paths of object stores (scheme://…). KServe mounts models from a sidecar, and sets
// MODEL_INIT_MODE=async if they may arrive later than the server.
func AwaitRoots(ctx context.Context, paths []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("timeout of %v", limit))
	defer cancel()
	for _, path := range paths {
		if strings.Contains(path, "://") {
			continue
		}
		for {
			_, err := os.ReadDir(path)
			if err == nil {
				break
			}
			again := time.NewTimer(lookApart)
			select {
			case <-again.C:
			case <-ctx.Done():
				again.Stop()
				return fmt.Errorf("wait for the model repository: %w: %w", err, context.Cause(ctx))
			}
		}
	}
	return nil
}
