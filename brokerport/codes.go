package brokerport

import (
	"errors"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Codes that only a broker's port answers.
const (
	// transactionalIDAuthorizationFailed is the one code of InitProducerId that
	// ends every client's attempts.
	transactionalIDAuthorizationFailed kafka.ErrorCode = 53
	securityDisabled                   kafka.ErrorCode = 54
	fetchSessionIDNotFound             kafka.ErrorCode = 70
	invalidFetchSessionEpoch           kafka.ErrorCode = 71
	fetchSessionTopicIDError           kafka.ErrorCode = 106
)

// codeOf gives the code that an error wraps, or UNKNOWN_SERVER_ERROR.
func codeOf(err error) kafka.ErrorCode {
	code := kafka.UnknownServerError
	errors.As(err, &code)
	return code
}
