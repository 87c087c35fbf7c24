package onewrite;

import java.sql.SQLException;

/** onewrite is not in use as it was asked for. The text has the reason. */
public final class OneWriteException extends SQLException {
    private static final long serialVersionUID = 1L;

    OneWriteException(String reason) {
        super(reason);
    }

    OneWriteException(String reason, Throwable cause) {
        super(reason, null, cause instanceof SQLException ? ((SQLException) cause).getErrorCode() : 0, cause);
    }
}
