package driver

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// isStatus says whether an error has its code already.
func isStatus(err error) bool {
	_, ok := status.FromError(err)
	return ok
}
