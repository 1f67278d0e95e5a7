package entry

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// Between two looks at a directory that is not there yet.
const lookApart = 100 * time.Millisecond

// AwaitRoots waits until each of paths is a directory that can be read, ctx ends, or limit has passed. Paths of object
// stores (scheme://…) are not waited for. KServe mounts models beside the server that uses them, and sets
// MODEL_INIT_MODE=async where they may come later than the server.
func AwaitRoots(ctx context.Context, paths []string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%v have passed", limit))
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
