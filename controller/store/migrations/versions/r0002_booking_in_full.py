"""Messages outside, watches for free slots, repeated bookings, maintenance, secret links, what channels did."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('series',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('rule', sa.JSON(), nullable=False),
    sa.Column('created_by', sa.String(length=32), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id')
    )
    op.create_table('notification_targets',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('user_id', sa.String(length=32), nullable=True),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('way', sa.String(length=16), nullable=False),
    sa.Column('url', sa.Text(), nullable=False),
    sa.Column('secret', sa.Text(), nullable=True),
    sa.Column('kinds', sa.JSON(), nullable=False),
    sa.Column('language', sa.String(length=16), nullable=True),
    sa.Column('zone', sa.String(length=64), nullable=True),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('disabled_at', sa.BigInteger(), nullable=True),
    sa.ForeignKeyConstraint(['user_id'], ['users.id'], ),
    sa.PrimaryKeyConstraint('id')
    )
    op.create_index(op.f('ix_notification_targets_user_id'), 'notification_targets', ['user_id'], unique=False)
    op.create_table('outbox',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('event_id', sa.String(length=96), nullable=False),
    sa.Column('user_id', sa.String(length=32), nullable=True),
    sa.Column('kind', sa.String(length=32), nullable=False),
    sa.Column('way', sa.String(length=16), nullable=False),
    sa.Column('address', sa.String(length=200), nullable=False),
    sa.Column('payload', sa.JSON(), nullable=False),
    sa.Column('state', sa.String(length=16), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('due_at', sa.BigInteger(), nullable=False),
    sa.Column('attempts', sa.Integer(), nullable=False),
    sa.Column('sent_at', sa.BigInteger(), nullable=True),
    sa.Column('error', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['user_id'], ['users.id'], ),
    sa.PrimaryKeyConstraint('id')
    )
    op.create_index(op.f('ix_outbox_user_id'), 'outbox', ['user_id'], unique=False)
    op.create_index('outbox_event_way', 'outbox', ['event_id', 'way', 'address'], unique=True)
    op.create_index('outbox_state_due', 'outbox', ['state', 'due_at'], unique=False)
    op.create_table('slot_watches',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('user_id', sa.String(length=32), nullable=False),
    sa.Column('kind', sa.String(length=16), nullable=False),
    sa.Column('model', sa.Text(), nullable=True),
    sa.Column('preset', sa.Text(), nullable=True),
    sa.Column('channel_id', sa.String(length=32), nullable=True),
    sa.Column('minutes', sa.Integer(), nullable=False),
    sa.Column('not_before', sa.BigInteger(), nullable=False),
    sa.Column('not_after', sa.BigInteger(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('told_at', sa.BigInteger(), nullable=True),
    sa.Column('cancelled_at', sa.BigInteger(), nullable=True),
    sa.ForeignKeyConstraint(['user_id'], ['users.id'], ),
    sa.PrimaryKeyConstraint('id')
    )
    op.create_index(op.f('ix_slot_watches_user_id'), 'slot_watches', ['user_id'], unique=False)
    op.create_table('channel_states',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('channel_id', sa.String(length=32), nullable=False),
    sa.Column('at', sa.BigInteger(), nullable=False),
    sa.Column('phase', sa.String(length=16), nullable=False),
    sa.Column('model', sa.Text(), nullable=True),
    sa.Column('preset', sa.Text(), nullable=True),
    sa.Column('fallback', sa.Boolean(), nullable=False),
    sa.Column('reservation_id', sa.String(length=32), nullable=True),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.ForeignKeyConstraint(['channel_id'], ['channels.id'], ),
    sa.PrimaryKeyConstraint('id')
    )
    op.create_index('channel_states_channel_at', 'channel_states', ['channel_id', 'at'], unique=False)
    op.create_table('web_sessions',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('sha256', sa.String(length=64), nullable=False),
    sa.Column('user_id', sa.String(length=32), nullable=False),
    sa.Column('way', sa.String(length=16), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('seen_at', sa.BigInteger(), nullable=False),
    sa.Column('ended_at', sa.BigInteger(), nullable=True),
    sa.Column('address', sa.String(length=64), nullable=False),
    sa.Column('agent', sa.Text(), nullable=False),
    sa.Column('id_token', sa.Text(), nullable=True),
    sa.ForeignKeyConstraint(['user_id'], ['users.id'], ),
    sa.PrimaryKeyConstraint('id'),
    sa.UniqueConstraint('sha256')
    )
    op.create_index(op.f('ix_web_sessions_user_id'), 'web_sessions', ['user_id'], unique=False)
    op.create_index(op.f('ix_web_sessions_seen_at'), 'web_sessions', ['seen_at'], unique=False)
    op.create_table('usage_days',
    sa.Column('day', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('user_id', sa.String(length=32), nullable=False),
    sa.Column('key_id', sa.String(length=32), nullable=False),
    sa.Column('node_id', sa.String(length=32), nullable=False),
    sa.Column('channel', sa.String(length=63).with_variant(sa.String(63, collation='C'), 'postgresql'), nullable=False),
    sa.Column('model', sa.Text(), nullable=False),
    sa.Column('requests', sa.BigInteger(), nullable=False),
    sa.Column('failed', sa.BigInteger(), nullable=False),
    sa.Column('seconds', sa.Float(), nullable=False),
    sa.Column('first_bytes', sa.Float(), nullable=False),
    sa.Column('answered', sa.BigInteger(), nullable=False),
    sa.Column('bytes_in', sa.BigInteger(), nullable=False),
    sa.Column('bytes_out', sa.BigInteger(), nullable=False),
    sa.Column('prompt_tokens', sa.BigInteger(), nullable=True),
    sa.Column('completion_tokens', sa.BigInteger(), nullable=True),
    sa.PrimaryKeyConstraint('day', 'user_id', 'key_id', 'node_id', 'channel', 'model')
    )
    op.create_table('state_days',
    sa.Column('start_at', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('end_at', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.PrimaryKeyConstraint('start_at', 'end_at')
    )
    op.create_table('channel_days',
    sa.Column('start_at', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('end_at', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('channel_id', sa.String(length=32), nullable=False),
    *(sa.Column(name, sa.BigInteger(), nullable=False)
      for name in ('reserved', 'loading', 'served', 'failed', 'idle', 'unknown', 'fallback')),
    sa.PrimaryKeyConstraint('start_at', 'end_at', 'channel_id')
    )
    op.create_table('secret_links',
    sa.Column('id', sa.String(length=32), nullable=False),
    sa.Column('kind', sa.String(length=16), nullable=False),
    sa.Column('user_id', sa.String(length=32), nullable=False),
    sa.Column('channel_id', sa.String(length=32), nullable=True),
    sa.Column('name', sa.String(length=200), nullable=False),
    sa.Column('prefix', sa.String(length=24), nullable=False),
    sa.Column('sha256', sa.String(length=64), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('revoked_at', sa.BigInteger(), nullable=True),
    sa.Column('last_used_at', sa.BigInteger(), nullable=True),
    sa.ForeignKeyConstraint(['channel_id'], ['channels.id'], ),
    sa.ForeignKeyConstraint(['user_id'], ['users.id'], ),
    sa.PrimaryKeyConstraint('id'),
    sa.UniqueConstraint('sha256')
    )
    op.create_index(op.f('ix_secret_links_user_id'), 'secret_links', ['user_id'], unique=False)
    op.add_column('leader', sa.Column('fleet_address', sa.Text(), server_default='', nullable=False))
    op.add_column('leader', sa.Column('pruned_at', sa.BigInteger(), nullable=True))
    op.add_column('leader', sa.Column('secrets', sa.JSON(), server_default='{}', nullable=False))
    op.add_column('loads', sa.Column('gpu_memory_bytes', sa.BigInteger(), nullable=True))
    op.add_column('node_models', sa.Column('rotating_disk', sa.Boolean(), server_default=sa.text('false'), nullable=False))
    op.add_column('nodes', sa.Column('cordon_reason', sa.Text(), server_default='', nullable=False))
    op.add_column('nodes', sa.Column('drain_until', sa.BigInteger(), nullable=True))
    op.add_column('nodes', sa.Column('disabled_at', sa.BigInteger(), nullable=True))
    op.add_column('nodes', sa.Column('certificate', sa.JSON(none_as_null=True), nullable=True))
    op.add_column('notifications', sa.Column('facts', sa.JSON(), server_default='{}', nullable=False))
    op.add_column('notifications', sa.Column('shown', sa.Boolean(), server_default=sa.text('true'), nullable=False))
    op.create_index('notifications_kind_at', 'notifications', ['kind', 'at'], unique=False)
    op.add_column('reservations', sa.Column('series_id', sa.String(length=32), nullable=True))
    op.add_column('reservations', sa.Column('maintenance', sa.Boolean(), server_default=sa.text('false'), nullable=False))
    op.add_column('reservations', sa.Column('problem', sa.Text(), server_default='', nullable=False))
    op.add_column('reservations', sa.Column('changed_at', sa.BigInteger(), nullable=True))
    op.create_index(op.f('ix_reservations_series_id'), 'reservations', ['series_id'], unique=False)
    op.drop_index('ix_reservations_status', 'reservations')
    holding = sa.text("status IN ('pending', 'approved')")
    op.create_index('reservations_holding', 'reservations', ['channel_id', 'starts_at', 'ends_at'],
                    sqlite_where=holding, postgresql_where=holding)
    op.add_column('users', sa.Column('subject', sa.Text(), nullable=True))
    op.add_column('users', sa.Column('notify', sa.JSON(), server_default='{}', nullable=False))
    op.add_column('users', sa.Column('password_temporary', sa.Boolean(), server_default=sa.text('false'), nullable=False))
    op.create_index(op.f('ix_users_subject'), 'users', ['subject'], unique=True)


def downgrade() -> None:
    raise NotImplementedError("go back by restoring the backup that was made before the upgrade")
